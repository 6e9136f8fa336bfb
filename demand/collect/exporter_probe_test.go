package collect_test

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/internal/peertest"
)

func TestProbeAsksEachFixedTargetOnce(t *testing.T) {
	idle, busy, login := newPageServer(t, idlePage), newPageServer(t, busyPage), newPageServer(t, "")
	login.set(withType("text/html", "<html>log in</html>"))
	targets := map[string]string{"i-1": idle.address(), "i-2": busy.address(), "i-3": login.address(), "i-4": peertest.DeadAddress(t)}
	got, err := collect.Probe(t.Context(), collect.ExporterPool{Targets: targets})
	require.NoError(t, err)
	require.Equal(t, 4, got.Asked)
	require.Len(t, got.Failed, 2)
	require.Equal(t, collect.ScrapeNotMetrics, got.Failed["i-3"].Reason)
	require.Equal(t, collect.ScrapeUnreachable, got.Failed["i-4"].Reason)
	for _, s := range []*pageServer{idle, busy, login} {
		require.EqualValues(t, 1, s.asked.Load())
	}
}

func TestProbeReadsAFileOfTargets(t *testing.T) {
	page := newPageServer(t, idlePage)
	path := filepath.Join(t.TempDir(), "targets.json")
	_, err := collect.Probe(t.Context(), collect.ExporterPool{TargetsFile: path})
	require.ErrorIs(t, err, os.ErrNotExist)
	require.NoError(t, os.WriteFile(path, []byte(`{"i-1": "`+page.address()+`"}`), 0o600))
	got, err := collect.Probe(t.Context(), collect.ExporterPool{TargetsFile: path})
	require.NoError(t, err)
	require.Equal(t, collect.Probed{Asked: 1, Failed: map[string]*collect.ScrapeError{}}, got)
}

func TestProbeWithoutTargetsOrTimeAsksNobody(t *testing.T) {
	got, err := collect.Probe(t.Context(), collect.ExporterPool{})
	require.NoError(t, err)
	require.Zero(t, got.Asked)

	page := newPageServer(t, idlePage)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	got, err = collect.Probe(ctx, collect.ExporterPool{Targets: map[string]string{"i-1": page.address()}})
	require.NoError(t, err)
	require.Zero(t, got.Asked)
	require.Empty(t, got.Failed, "it was not given its time")

	_, err = collect.Probe(t.Context(), collect.ExporterPool{TLS: true, CAFile: "/nowhere"})
	require.ErrorContains(t, err, "ca_file")
}
