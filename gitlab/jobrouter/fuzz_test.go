package jobrouter

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/route"
)

// FuzzQuestion rewrites whatever a runner may have sent: what comes out must be a
// question with what was put into it, or an error.
func FuzzQuestion(f *testing.F) {
	f.Add(requestBody("m1", "first", runnerFeatures()), "v1")
	f.Add([]byte(`{"info":null,"last_update":7}`), "\x00\"")
	f.Add([]byte(`{"info":{"features":[]},"info":{}}`), "")
	f.Add([]byte(`[]`), "v")
	f.Fuzz(func(t *testing.T, body []byte, lastUpdate string) {
		if written, err := withLastUpdate(body, lastUpdate); err == nil && lastUpdate != "" {
			fields, err := readFields(written)
			require.NoError(t, err)
			require.NotEmpty(t, fields[fieldLastUpdate])
		}
		question, err := forNobody(body, testToken, lastUpdate)
		require.NoError(t, err)
		if len(question) > route.MaxRequestBytes {
			return
		}
		fields, err := readFields(question)
		require.NoError(t, err)
		require.Equal(t, `"`+ourSystem+`"`, string(fields[fieldSystem]))
		require.Equal(t, `"`+testToken+`"`, string(fields[fieldToken]))
		info, err := readFields(fields[fieldInfo])
		require.NoError(t, err)
		require.Equal(t, everyRunner, readFeatures(info[fieldFeatures]).names)
	})
}
