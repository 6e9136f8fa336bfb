package gitlab_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

func TestGroupID(t *testing.T) {
	fake := gitlabtest.New(gitlabtest.Options{})
	t.Cleanup(fake.Close)
	id := fake.AddGroup("team/backend")
	server := httptest.NewServer(fake)
	t.Cleanup(server.Close)
	token := fake.AddAPIToken(gitlabtest.Admin)
	c, err := gitlab.New(gitlab.Options{URL: server.URL, Token: func() (string, error) { return token, nil }})
	require.NoError(t, err)
	got, err := c.GroupID(t.Context(), "team/backend")
	require.NoError(t, err)
	require.Equal(t, id, got)
	_, err = c.GroupID(t.Context(), "team/none")
	require.ErrorIs(t, err, gitlab.ErrNotFound)
	require.NotContains(t, err.Error(), token)
}

func TestGroupIDOfAnotherGroup(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		_, _ = w.Write([]byte(`{"id": 7, "full_path": "other"}`))
	}))
	t.Cleanup(server.Close)
	c, err := gitlab.New(gitlab.Options{URL: server.URL, Token: func() (string, error) { return "t", nil }})
	require.NoError(t, err)
	_, err = c.GroupID(t.Context(), "team")
	require.ErrorIs(t, err, gitlab.ErrProtocol)
}
