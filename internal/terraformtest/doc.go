// Package terraformtest holds the modules and examples in terraform/ to what the
// documentation says of them, without an account: it formats, validates and tests
// them with terraform itself, looks at the policies and scripts that they would give
// to a cloud, and applies them to an emulator.
//
// It works on a copy of terraform/, and never talks to a registry: providers come
// from a mirror in a folder. What the machine does not have is a loud skip. Google's
// provider is never there: the program in googleschema, which knows its arguments and
// makes nothing, takes its place.
package terraformtest
