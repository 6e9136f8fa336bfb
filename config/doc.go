// Package config turns one strict YAML file into one validated value.
//
// A file is read as a whole or not at all: [Load] and [Parse] report every
// unknown key, wrong type and broken rule at once, each as a [Problem] with the
// file, the line, the path of the setting and a sentence that says what to do. A
// bad file therefore never changes a running control plane, and one look at the
// answer is enough to mend it. A reload is the same: [Config.Merge] gives a new
// value or an error, never a half-changed one.
//
// Secrets are never in the file. It says where they are ([SecretSource]); what is
// read from there is a [Secret], which prints as [MASKED] whatever prints it.
//
// The package does no more than that: it opens no listener, starts no plugin and
// does not watch the file.
package config
