//go:build !linux

package child

import "os/exec"

// DieWithParent needs Linux; elsewhere a program that is killed leaves its servers.
func DieWithParent(*exec.Cmd) {}
