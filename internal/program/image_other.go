//go:build !linux

package program

import "io"

func copyImage(dir, name string, from io.Reader) (*Image, int64, error) {
	return copyToDir(dir, name, from)
}
