// Package scriptrouter is the simplest Job Router: it passes each call on to GitLab,
// or answers as a test tells it to. Runners are tested against it: package
// minirunner, and a real gitlab-runner in package realrunner.
//
// It keeps nothing, takes no care of tokens and gives a job that it has got to
// nobody but the caller.
package scriptrouter
