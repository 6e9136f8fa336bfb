package controlplane

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/server"
)

// deskLog is what the desk's events write.
func deskLog(t *testing.T, tell func(jobrouter.Events)) []string {
	t.Helper()
	var text strings.Builder
	g := &gitLab{c: &ControlPlane{log: slog.New(slog.NewTextHandler(&text, nil)), metrics: server.NewMetrics("test")}}
	tell(g.deskEvents())
	return strings.Split(strings.TrimSpace(text.String()), "\n")
}

// Anybody who reaches the job router can be refused as often as he likes.
func TestRefusedRunnersDoNotFloodTheLog(t *testing.T) {
	lines := deskLog(t, func(e jobrouter.Events) {
		for range 1_000 {
			e.Refused(jobrouter.RefusedInfo{Why: "no pool is served by this runner token", Told: "ask GitLab"})
		}
	})
	require.Len(t, lines, 1)
	require.Contains(t, lines[0], "no pool is served by this runner token")
}

func TestWhyGitLabGivesNoJobsIsLogged(t *testing.T) {
	why := errors.New("the certificate is not for gitlab.example.com")
	for name, tt := range map[string]struct {
		polled jobrouter.PolledInfo
		want   string
	}{
		"no answer": {jobrouter.PolledInfo{Token: "0123456789abcdef", Ill: true, Err: why}, why.Error()},
		"refused":   {jobrouter.PolledInfo{Token: "0123456789abcdef", Ill: true, Status: 403}, "status=403"},
		"limited":   {jobrouter.PolledInfo{Token: "0123456789abcdef", Ill: true, Status: 429}, "status=429"},
		"no job":    {jobrouter.PolledInfo{Token: "0123456789abcdef", Status: 204}, ""},
		"we stop":   {jobrouter.PolledInfo{Token: "0123456789abcdef", Ill: true, Err: context.Canceled}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			lines := deskLog(t, func(e jobrouter.Events) {
				e.Polled(tt.polled)
				e.Polled(tt.polled)
			})
			require.Len(t, lines, 1)
			require.Contains(t, lines[0], tt.want)
			if tt.want == "" {
				require.Empty(t, lines[0])
			} else {
				require.Contains(t, lines[0], "token=0123456789ab ")
			}
		})
	}
}
