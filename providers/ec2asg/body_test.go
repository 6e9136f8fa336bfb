package ec2asg_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/providers/ec2asg"
)

// late looks for the end of what was sent after its sender has closed it, as net/http
// does when an answer comes quickly.
type late struct {
	server http.Handler
	sent   []io.Reader
}

func (c *late) Do(r *http.Request) (*http.Response, error) {
	c.sent = append(c.sent, r.Body)
	answer := httptest.NewRecorder()
	served := r.Clone(r.Context())
	served.Body, served.RequestURI = io.NopCloser(io.LimitReader(r.Body, r.ContentLength)), r.URL.Path
	c.server.ServeHTTP(answer, served)
	return answer.Result(), nil
}

// TestAQuickAnswerIsNotLost: a body that fails when it is read after its end costs the
// connection, and with it the answer that is on its way.
func TestAQuickAnswerIsNotLost(t *testing.T) {
	testCredentials(t)
	client := &late{server: &api{t: t, pageSize: 100, groups: map[string]string{"linux": group("linux", 2, 1, 5, "")}}}
	p := ec2asg.NewWith(ec2asg.Options{HTTP: client, AccessKeyID: "AKIDEXAMPLE", SecretAccessKey: "secret-of-the-test"})
	config, err := json.Marshal(map[string]any{"region": "us-east-1", "endpoint": "http://aws.test", "groups": []string{"linux"}})
	require.NoError(t, err)
	require.NoError(t, p.Configure(t.Context(), config))
	_, err = p.Status(t.Context(), []string{"linux"})
	require.NoError(t, err)
	require.NotEmpty(t, client.sent)
	for _, body := range client.sent {
		rest, err := io.Copy(io.Discard, body)
		require.NoError(t, err)
		require.Zero(t, rest)
	}
}
