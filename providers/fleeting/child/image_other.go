//go:build !linux

package child

import "io"

func copyImage(name string, from io.Reader) (*Image, error) { return copyToDir(name, from) }
