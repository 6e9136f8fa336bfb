package gitlab

import (
	"bytes"
	"encoding/json"
)

// HeadFields reads fields of a JSON object of which the end may be missing: each that
// stands whole in the head, into what fields has for it. It reports whether the head is
// the beginning of an object.
func HeadFields(head []byte, fields map[string]any) bool {
	dec := json.NewDecoder(bytes.NewReader(head))
	if t, err := dec.Token(); err != nil || t != json.Delim('{') {
		return false
	}
	for dec.More() {
		t, err := dec.Token()
		if err != nil {
			return true
		}
		name, _ := t.(string)
		var raw json.RawMessage
		if err := dec.Decode(&raw); err != nil {
			return true
		}
		if into, ok := fields[name]; ok {
			_ = json.Unmarshal(raw, into) // of the wrong type: as if it were missing
		}
	}
	return true
}
