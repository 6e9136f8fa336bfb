//go:build !linux

package providers

import "io"

func copyImage(dir, name string, from io.Reader) (*image, int64, error) {
	return copyToDir(dir, name, from)
}
