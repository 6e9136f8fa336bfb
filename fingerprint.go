package spillway

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
)

// Versions of the canonical encodings below. A version is the first thing that
// is hashed, so that a change of the encoding changes every hash at once and no
// two versions ever mix in the store.
const (
	fingerprintVersion = "spillway-capability-v1"
	classVersion       = "spillway-requirement-v1"
)

// Fingerprint identifies a capability: equal fingerprint ⇔ equal answer for
// every job. It is SHA-256 over a versioned encoding in which every list is
// preceded by its count and every string by its length, so that ["a,b"] and
// ["a","b"] differ.
type Fingerprint [sha256.Size]byte

// String is the whole hash in hex.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:]) }

// Short is the first 12 hex digits, for people and metric labels.
func (f Fingerprint) Short() string { return hex.EncodeToString(f[:6]) }

// IsZero reports whether f was never computed.
func (f Fingerprint) IsZero() bool { return f == Fingerprint{} }

// MarshalText writes the whole hash in hex.
func (f Fingerprint) MarshalText() ([]byte, error) { return []byte(f.String()), nil }

// UnmarshalText reads what MarshalText wrote.
func (f *Fingerprint) UnmarshalText(b []byte) error {
	p, err := ParseFingerprint(string(b))
	if err != nil {
		return err
	}
	*f = p
	return nil
}

// ParseFingerprint reads 64 hex digits.
func ParseFingerprint(s string) (Fingerprint, error) {
	var f Fingerprint
	if len(s) != hex.EncodedLen(len(f)) {
		return f, invalidf("a fingerprint has %d hex digits, got %d", hex.EncodedLen(len(f)), len(s))
	}
	if _, err := hex.Decode(f[:], []byte(s)); err != nil {
		return Fingerprint{}, fmt.Errorf("%w: fingerprint: %w", ErrInvalid, err)
	}
	return f, nil
}

// Fingerprint returns the identity of c, whatever the order of its sets.
func (c Capability) Fingerprint() Fingerprint {
	c = c.Normalize()
	e := encoder{}
	b := e.str(nil, fingerprintVersion)
	b = e.strs(b, c.Tags)
	b = e.flag(b, c.RunUntagged)
	b = e.flag(b, c.Protected)
	b = e.str(b, string(c.Type))
	b = e.ints(b, c.Groups)
	b = e.ints(b, c.Projects)
	b = e.resources(b, c.Resources)
	b = e.origin(b, c.Origin)
	return sha256.Sum256(b)
}

// JobClass identifies a requirement: jobs with the same requirement form one
// class and are counted, attributed and claimed together. It is 32 hex digits of
// the SHA-256 of the requirement's canonical encoding.
type JobClass string

// Class returns the class of r, whatever the order of its sets.
func (r Requirement) Class() JobClass {
	r = r.Normalize()
	e := encoder{}
	b := e.str(nil, classVersion)
	b = e.strs(b, r.Tags)
	b = e.flag(b, r.Protected)
	b = e.ints(b, []int64{r.Project})
	b = e.ints(b, r.Groups)
	b = e.resources(b, r.Resources)
	b = e.origin(b, r.Origin)
	sum := sha256.Sum256(b)
	return JobClass(hex.EncodeToString(sum[:16]))
}

// encoder appends values in a form that no other sequence of values shares.
type encoder struct{}

func (encoder) str(b []byte, s string) []byte {
	b = binary.AppendUvarint(b, uint64(len(s)))
	return append(b, s...)
}

func (e encoder) strs(b []byte, list []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, s := range list {
		b = e.str(b, s)
	}
	return b
}

func (encoder) ints(b []byte, list []int64) []byte {
	b = binary.AppendUvarint(b, uint64(len(list)))
	for _, v := range list {
		b = binary.AppendVarint(b, v)
	}
	return b
}

func (encoder) flag(b []byte, v bool) []byte {
	if v {
		return append(b, 1)
	}
	return append(b, 0)
}

// origin is the last thing of an encoding, and absent for our own queue: what was
// hashed before there was any other origin keeps its hash.
func (e encoder) origin(b []byte, origin string) []byte {
	if origin == "" {
		return b
	}
	return e.str(b, origin)
}

func (e encoder) resources(b []byte, r Resources) []byte {
	b = binary.AppendVarint(b, r.MilliCPU)
	b = binary.AppendVarint(b, r.MemoryMiB)
	return e.strs(b, r.Features)
}
