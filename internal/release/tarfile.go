package main

import (
	"archive/tar"
	"bytes"
	"cmp"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"time"
)

// entry is a file for an archive: the one at from, or data.
type entry struct {
	name string // in the archive
	from string
	data []byte
	mode int64 // permissions; with a name that ends in "/", of that folder
}

func (e entry) content() ([]byte, error) {
	if e.from == "" {
		return e.data, nil
	}
	return os.ReadFile(e.from)
}

// writeTar writes entries, sorted and each behind its folders, all of root and of
// one date.
func writeTar(w io.Writer, entries []entry, date time.Time) error {
	out := tar.NewWriter(w)
	header := func(name string, kind byte, mode, size int64) error {
		return out.WriteHeader(&tar.Header{Typeflag: kind, Name: name, Mode: mode, Size: size, ModTime: date, Format: tar.FormatUSTAR})
	}
	for _, e := range withFolders(entries) {
		if e.name[len(e.name)-1] == '/' {
			if err := header(e.name, tar.TypeDir, e.mode, 0); err != nil {
				return err
			}
			continue
		}
		data, err := e.content()
		if err != nil {
			return err
		}
		if err := header(e.name, tar.TypeReg, e.mode, int64(len(data))); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
		if _, err := out.Write(data); err != nil {
			return fmt.Errorf("%s: %w", e.name, err)
		}
	}
	return out.Close()
}

// withFolders adds the folders that entries lie in and that none of them is.
func withFolders(entries []entry) []entry {
	all := slices.Clone(entries)
	known := map[string]bool{}
	for _, e := range entries {
		known[e.name] = true
	}
	for _, e := range entries {
		for dir := path.Dir(path.Clean(e.name)); dir != "." && dir != "/"; dir = path.Dir(dir) {
			if !known[dir+"/"] {
				known[dir+"/"] = true
				all = append(all, entry{name: dir + "/", mode: 0o755})
			}
		}
	}
	slices.SortFunc(all, func(a, b entry) int { return cmp.Compare(a.name, b.name) })
	return all
}

// writeTarGz writes a compressed archive, with no name or date of its own.
func writeTarGz(to string, entries []entry, date time.Time) error {
	f, err := os.Create(to)
	if err != nil {
		return err
	}
	zip, err := gzip.NewWriterLevel(f, gzip.BestCompression)
	if err != nil {
		return errors.Join(err, f.Close())
	}
	return errors.Join(writeTar(zip, entries, date), zip.Close(), f.Close())
}

// compressed is data as a .gz file, with no name or date of its own.
func compressed(data []byte) ([]byte, error) {
	var out bytes.Buffer
	zip, err := gzip.NewWriterLevel(&out, gzip.BestCompression)
	if err != nil {
		return nil, err
	}
	if _, err := zip.Write(data); err != nil {
		return nil, err
	}
	if err := zip.Close(); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}
