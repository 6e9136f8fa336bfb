package main

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"io"
	"os"
	"path/filepath"
)

// sumsFile is the last thing that a release gets.
const sumsFile = "SHA256SUMS"

// writeSums lists the checksums of a folder's files, for sha256sum --check.
func writeSums(folder string) error {
	files, err := os.ReadDir(folder)
	if err != nil {
		return err
	}
	var list bytes.Buffer
	for _, f := range files {
		sum, err := sumOf(filepath.Join(folder, f.Name()))
		if err != nil {
			return err
		}
		fmt.Fprintf(&list, "%x  %s\n", sum, f.Name())
	}
	return os.WriteFile(filepath.Join(folder, sumsFile), list.Bytes(), 0o644)
}

func sumOf(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = f.Close() }() // it was only read
	sum := sha256.New()
	if _, err := io.Copy(sum, f); err != nil {
		return nil, err
	}
	return sum.Sum(nil), nil
}
