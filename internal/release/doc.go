// Command release makes everything that a release hands out, on one machine, with no
// daemon and, once the modules are there, without a network:
//
//	spillway_VERSION_linux_ARCH.tar.gz   the programs, manual pages and completions
//	spillway-control-plane, spillway-agent   as deb and rpm
//	spillway-VERSION.oci.tar             an OCI image layout of the control plane, all architectures
//	spillway-VERSION.tgz                 the Helm chart
//	….cdx.json                           a CycloneDX list of what each package is made of
//	SHA256SUMS
//
// The same source, version and date give the same bytes: nothing of the machine, its
// clock or its folders gets in. It is a module of its own, so that nothing that
// Spillway is built from depends on what packages are made with.
package main
