package pluginsdk

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"time"
)

// mismatch says what is there instead of what a setting needs. Only a number is
// repeated, and only where a number is needed.
func mismatch(raw json.RawMessage, v reflect.Value) error {
	got := kindOfJSON(raw)
	bits := numberBits(v)
	if got == need(v) { // of a kind that encoding/json reads as a whole
		return errors.New("has a part of the wrong type")
	}
	if got != "a number" || bits == 0 || len(raw) > maxKeyBytes {
		return fmt.Errorf("must be %s, not %s", need(v), got)
	}
	return fmt.Errorf("must be %s in %d bits, not %s", need(v), bits, raw)
}

func need(v reflect.Value) string {
	if v.Type() == reflect.TypeFor[time.Duration]() {
		return `a duration in quotes, such as "90s"`
	}
	if v.CanAddr() && v.Addr().Type().Implements(reflect.TypeFor[encoding.TextUnmarshaler]()) {
		return "a string"
	}
	switch v.Kind() {
	case reflect.Bool:
		return "true or false"
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		return "a whole number"
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return "a whole number of 0 or more"
	case reflect.Float32, reflect.Float64:
		return "a number"
	case reflect.Slice, reflect.Array:
		return "a list"
	case reflect.Struct, reflect.Map:
		return "an object"
	case reflect.Pointer:
		return need(reflect.Zero(v.Type().Elem()))
	default:
		return "a string"
	}
}

// numberBits is the size of a number's type; 0 for other types, durations too.
func numberBits(v reflect.Value) int {
	if v.Type() != reflect.TypeFor[time.Duration]() && (v.CanInt() || v.CanUint() || v.CanFloat()) {
		return v.Type().Bits()
	}
	return 0
}

func kindOfJSON(raw json.RawMessage) string {
	switch raw[0] {
	case '{':
		return "an object"
	case '[':
		return "a list"
	case '"':
		return "a string"
	case 'n':
		return "null"
	case 't', 'f':
		return "true or false"
	default:
		return "a number"
	}
}

// suggest says which of the known settings was probably meant, or what there is.
func suggest(got string, known []string) string {
	best, least := "", 1+min(2, len(got)/2)
	for _, name := range known {
		if d := differing(got, name); d < least {
			best, least = name, d
		}
	}
	switch {
	case best != "":
		return "did you mean " + best + "?"
	case len(known) == 0:
		return "there is none at all"
	default:
		return "there are " + strings.Join(known, ", ")
	}
}

// differing is how many bytes are between what two names begin and end with
// alike: 1 for a letter that is missing, another or too many, 2 for a swap.
func differing(a, b string) int {
	for a != "" && b != "" && a[0] == b[0] {
		a, b = a[1:], b[1:]
	}
	for a != "" && b != "" && a[len(a)-1] == b[len(b)-1] {
		a, b = a[:len(a)-1], b[:len(b)-1]
	}
	return max(len(a), len(b))
}
