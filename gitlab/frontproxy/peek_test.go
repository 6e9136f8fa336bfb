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

func TestHeadFieldsOfABrokenObject(t *testing.T) {
	var id int64
	var token string
	require.True(t, headFields([]byte(`{"id":7,"token":"t","variables":[{"key":"`), map[string]any{"id": &id, "token": &token}))
	require.Equal(t, int64(7), id)
	require.Equal(t, "t", token)
	for _, text := range []string{"", "[]", "7", "<html>", `"id"`, "null"} {
		require.False(t, headFields([]byte(text), nil), text)
	}
	id = 0
	require.True(t, headFields([]byte(`{"id":"seven","token":`), map[string]any{"id": &id}))
	require.Zero(t, id)
}

// FuzzHeadFields: of a whole object it finds what a decoder finds, of a head never
// anything else.
func FuzzHeadFields(f *testing.F) {
	f.Add([]byte(`{"id":7,"token":"x","a":{"id":8}}`), 12)
	f.Add([]byte(`{"a":[1,2,{"id":3}],"id":4}`), 20)
	f.Add([]byte(`{"id":1,"id":2}`), 3)
	f.Fuzz(func(t *testing.T, text []byte, cut int) {
		var fields map[string]json.RawMessage
		if json.Unmarshal(text, &fields) != nil || fields == nil {
			headFields(text, map[string]any{}) // only has to end
			return
		}
		var want, got, part int64
		_ = json.Unmarshal(fields["id"], &want)
		headFields(text, map[string]any{"id": &got})
		if bytes.Count(text, []byte(`"id"`)) == 1 {
			require.Equal(t, want, got)
			headFields(text[:min(len(text), max(0, cut))], map[string]any{"id": &part})
			require.Contains(t, []int64{0, want}, part)
		}
	})
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
