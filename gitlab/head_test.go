package gitlab

import (
	"bytes"
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHeadFieldsOfABrokenObject(t *testing.T) {
	var id int64
	var token string
	require.True(t, HeadFields([]byte(`{"id":7,"token":"t","variables":[{"key":"`), map[string]any{"id": &id, "token": &token}))
	require.Equal(t, int64(7), id)
	require.Equal(t, "t", token)
	for _, text := range []string{"", "[]", "7", "<html>", `"id"`, "null"} {
		require.False(t, HeadFields([]byte(text), nil), text)
	}
	id = 0
	require.True(t, HeadFields([]byte(`{"id":"seven","token":`), map[string]any{"id": &id}))
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
			HeadFields(text, map[string]any{}) // only has to end
			return
		}
		var want, got, part int64
		_ = json.Unmarshal(fields["id"], &want)
		HeadFields(text, map[string]any{"id": &got})
		if bytes.Count(text, []byte(`"id"`)) == 1 {
			require.Equal(t, want, got)
			HeadFields(text[:min(len(text), max(0, cut))], map[string]any{"id": &part})
			require.Contains(t, []int64{0, want}, part)
		}
	})
}
