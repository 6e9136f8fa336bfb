// Command googleschema stands in for hashicorp/google, Google's provider for Terraform:
// it knows the arguments of the resources that the modules make, and makes none. That is
// enough for terraform validate, and for terraform test with mock_provider, on machines
// that do not have the provider itself.
//
// What it does not know: which arguments exclude each other, and which values Google
// takes. It is a module of its own, so that nothing of it is in what is released.
package main
