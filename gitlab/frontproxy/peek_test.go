package frontproxy

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReadHeadAtItsEdge(t *testing.T) {
	head, whole, err := readHead(strings.NewReader("1234"), 4)
	require.NoError(t, err)
	require.True(t, whole)
	require.Equal(t, "1234", string(head))
	head, whole, err = readHead(strings.NewReader("12345"), 4)
	require.NoError(t, err)
	require.False(t, whole)
	require.Equal(t, "12345", string(head), "what was read is not lost")
}

// FuzzWithField: the object has one more field, and all others as they were.
func FuzzWithField(f *testing.F) {
	for _, text := range []string{`{}`, ` { } `, `{"id":1,"token":"a"}` + "\n", `{"a":"}"}`, `[]`, `null`, `{"capability_fingerprint":1}`, `{"a":{}}`} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, object []byte) {
		original := bytes.Clone(object)
		longer, ok := withField(object, "capability_fingerprint", `f"1`)
		require.Equal(t, original, object, "the input is not changed")
		if !ok {
			require.Equal(t, object, longer)
			return
		}
		var before, after map[string]json.RawMessage
		require.NoError(t, json.Unmarshal(object, &before))
		require.NoError(t, json.Unmarshal(longer, &after))
		require.JSONEq(t, `"f\"1"`, string(after["capability_fingerprint"]))
		delete(after, "capability_fingerprint")
		require.Equal(t, before, after)
	})
}
