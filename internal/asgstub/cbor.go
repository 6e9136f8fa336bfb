package asgstub

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"time"
)

// The part of CBOR (RFC 8949) that the RPC v2 protocol needs:
// https://smithy.io/2.0/additional-specs/protocols/smithy-rpc-v2.html

// The major types.
const (
	cborUint   = 0
	cborNegint = 1
	cborBytes  = 2
	cborText   = 3
	cborArray  = 4
	cborMap    = 5
	cborTag    = 6
	cborSimple = 7
)

const (
	cborEpoch      = 1  // the tag of a time
	cborIndefinite = 31 // a length that a break ends
	cborBreak      = 0xff
	maxCBORDepth   = 32
)

var errCBOR = errors.New("not the CBOR of a request")

// appendCBOR writes v: texts, numbers, booleans, times, []any and map[string]any.
func appendCBOR(b []byte, v any) []byte {
	switch v := v.(type) {
	case string:
		return append(cborHead(b, cborText, uint64(len(v))), v...)
	case bool:
		if v {
			return append(b, cborSimple<<5|21)
		}
		return append(b, cborSimple<<5|20)
	case int:
		if v < 0 {
			return cborHead(b, cborNegint, uint64(-1-v)) //nolint:gosec // not negative
		}
		return cborHead(b, cborUint, uint64(v))
	case float64:
		return binary.BigEndian.AppendUint64(append(b, cborSimple<<5|27), math.Float64bits(v))
	case time.Time:
		b = cborHead(b, cborTag, cborEpoch)
		return appendCBOR(b, float64(v.UnixMilli())/1000)
	case []any:
		b = cborHead(b, cborArray, uint64(len(v)))
		for _, e := range v {
			b = appendCBOR(b, e)
		}
		return b
	case map[string]any:
		b = cborHead(b, cborMap, uint64(len(v)))
		for _, key := range sortedKeys(v) {
			b = appendCBOR(appendCBOR(b, key), v[key])
		}
		return b
	}
	panic(fmt.Sprintf("asgstub: no CBOR for %T", v))
}

func cborHead(b []byte, major byte, n uint64) []byte {
	major <<= 5
	switch {
	case n < 24:
		return append(b, major|byte(n))
	case n <= math.MaxUint8:
		return append(b, major|24, byte(n))
	case n <= math.MaxUint16:
		return binary.BigEndian.AppendUint16(append(b, major|25), uint16(n))
	case n <= math.MaxUint32:
		return binary.BigEndian.AppendUint32(append(b, major|26), uint32(n))
	}
	return binary.BigEndian.AppendUint64(append(b, major|27), n)
}

// readCBOR reads one value; numbers become float64, as from JSON.
func readCBOR(data []byte) (any, error) {
	r := &cborReader{data: data}
	v, err := r.value(0)
	if err == nil && len(r.data) > 0 {
		err = errCBOR
	}
	return v, err
}

type cborReader struct{ data []byte }

func (r *cborReader) value(depth int) (any, error) {
	major, info, n, err := r.head()
	if err != nil || depth > maxCBORDepth {
		return nil, errCBOR
	}
	switch major {
	case cborUint:
		return float64(n), nil
	case cborNegint:
		return -1 - float64(n), nil
	case cborBytes, cborText:
		raw, err := r.take(n)
		return string(raw), err
	case cborArray:
		return r.array(info, n, depth)
	case cborMap:
		return r.table(info, n, depth)
	case cborTag:
		return r.value(depth + 1) // the operation knows that it is a time
	}
	return cborPlain(info, n)
}

func cborPlain(info byte, n uint64) (any, error) {
	switch info {
	case 20, 21:
		return info == 21, nil
	case 22, 23:
		return nil, nil //nolint:nilnil // null is a value
	case 26:
		return float64(math.Float32frombits(uint32(n))), nil //nolint:gosec // four bytes
	case 27:
		return math.Float64frombits(n), nil
	}
	return nil, errCBOR
}

// head reads the first byte and the number that goes with it.
func (r *cborReader) head() (major, info byte, n uint64, err error) {
	first, err := r.take(1)
	if err != nil {
		return 0, 0, 0, err
	}
	major, info = first[0]>>5, first[0]&31
	if info < 24 || info == cborIndefinite {
		return major, info, uint64(info), nil
	}
	if info > 27 {
		return 0, 0, 0, errCBOR
	}
	raw, err := r.take(1 << (info - 24))
	for _, c := range raw {
		n = n<<8 | uint64(c)
	}
	return major, info, n, err
}

func (r *cborReader) take(n uint64) ([]byte, error) {
	if n > uint64(len(r.data)) {
		return nil, errCBOR
	}
	out := r.data[:n]
	r.data = r.data[n:]
	return out, nil
}

// more reports whether a list or table of n items goes on after i of them.
func (r *cborReader) more(info byte, n uint64, i int) bool {
	if info != cborIndefinite {
		return uint64(i) < n //nolint:gosec // not negative
	}
	if len(r.data) > 0 && r.data[0] == cborBreak {
		r.data = r.data[1:]
		return false
	}
	return true
}

func (r *cborReader) array(info byte, n uint64, depth int) (any, error) {
	out := []any{}
	for i := 0; r.more(info, n, i); i++ {
		v, err := r.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
	}
	return out, nil
}

func (r *cborReader) table(info byte, n uint64, depth int) (any, error) {
	out := make(map[string]any)
	for i := 0; r.more(info, n, i); i++ {
		k, err := r.value(depth + 1)
		key, ok := k.(string)
		if err != nil || !ok {
			return nil, errCBOR
		}
		if out[key], err = r.value(depth + 1); err != nil {
			return nil, err
		}
	}
	return out, nil
}
