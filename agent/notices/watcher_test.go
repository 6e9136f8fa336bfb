package notices_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/agent/notices"
)

func TestAutoFindsOutWhoAnswers(t *testing.T) {
	for want, url := range map[notices.Cloud]string{notices.AWS: startIMDS(t).URL, notices.GCE: startMetadataServer(t).URL} {
		// Who takes seconds to answer, on a busy machine, is taken for nobody.
		require.Eventually(t, func() bool { return open(t, notices.Auto, url, nil).Cloud() == want }, within, time.Millisecond, want)
	}

	other := httptest.NewServer(http.NotFoundHandler())
	t.Cleanup(other.Close)
	require.Equal(t, notices.NoCloud, open(t, notices.Auto, other.URL, nil).Cloud())
	other.Close()
	w := open(t, notices.Auto, other.URL, nil) // nobody listens there any more
	require.Equal(t, notices.NoCloud, w.Cloud())
	_, err := w.InstanceID(t.Context())
	require.ErrorIs(t, err, notices.ErrUnanswered)
	requireNothing(t, watch(t, w))
}

func TestNoneAsksNobody(t *testing.T) {
	s := startIMDS(t)
	w := open(t, notices.NoCloud, s.URL, nil)
	requireNothing(t, watch(t, w))
	require.Zero(t, s.asked("/latest/api/token"))
}

func TestTheEndpointIsOnThisMachinesLinks(t *testing.T) {
	for endpoint, good := range map[string]bool{
		notices.DefaultEndpoint:    true,
		"http://127.0.0.1:1338":    true,
		"http://[::1]:80/":         true,
		"http://[fd00:ec2::254]":   true,
		"http://[fe80::1]":         true,
		"http://169.254.170.2":     true,
		"https://169.254.169.254":  false,
		"http://192.0.2.1":         false,
		"http://[fd00:ec2::253]":   false,
		"http://example.com":       false,
		"http://localhost":         false, // a name may be made to mean anything
		"http://u:p@127.0.0.1":     false,
		"http://127.0.0.1/latest":  false,
		"http://127.0.0.1/?x":      false,
		"127.0.0.1":                false,
		"http://127.0.0.1\n.evil/": false,
		"http://2130706433":        false,
	} {
		_, err := notices.Open(t.Context(), notices.Options{Cloud: notices.AWS, Endpoint: endpoint})
		if good {
			require.NoError(t, err, endpoint)
		} else {
			require.ErrorIs(t, err, notices.ErrOptions, endpoint)
		}
	}
}

func TestParseCloud(t *testing.T) {
	for _, name := range []string{"aws", "gce", "none", "auto"} {
		c, err := notices.ParseCloud(name)
		require.NoError(t, err)
		require.EqualValues(t, name, c)
	}
	for _, name := range []string{"", "AWS", "azure"} {
		_, err := notices.ParseCloud(name)
		require.ErrorIs(t, err, notices.ErrOptions)
		_, err = notices.Open(t.Context(), notices.Options{Cloud: notices.Cloud(name), Endpoint: "http://127.0.0.1"})
		require.ErrorIs(t, err, notices.ErrOptions)
	}
}

func TestInstanceIDEndsWithTheContext(t *testing.T) {
	s := startIMDS(t)
	s.breakWith(func(w http.ResponseWriter, _ *http.Request) bool {
		w.WriteHeader(http.StatusServiceUnavailable)
		return true
	})
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err := open(t, notices.AWS, s.URL, nil).InstanceID(ctx)
	require.Error(t, err)
}

// Of all that is heard, in whatever order, the gravest stands at the end, and each
// step is news.
func TestNewsOnlyGetGraver(t *testing.T) {
	kinds := []notices.Kind{notices.None, notices.Rebalance, notices.Maintenance, notices.Terminating, notices.Spot}
	rapid.Check(t, func(t *rapid.T) {
		known, worst, steps := notices.Notice{}, 0, 0
		for range rapid.IntRange(1, 50).Draw(t, "heard") {
			k := rapid.IntRange(0, len(kinds)-1).Draw(t, "kind")
			n := notices.Notice{Kind: kinds[k]}
			if k > 0 && rapid.Bool().Draw(t, "deadline") {
				n.Deadline = time.Unix(rapid.Int64Range(1, 1000).Draw(t, "at"), 0)
			}
			worst = max(worst, k)
			if n.Supersedes(known) {
				known = n
				steps++
			}
			require.Equal(t, kinds[worst], known.Kind)
		}
		require.LessOrEqual(t, steps, 8)
		require.Equal(t, worst > 1, known.Kind.Ends())
	})
}

func TestNoticesPrintThemselves(t *testing.T) {
	require.Equal(t, "rebalance, deadline not known", notices.Notice{Kind: notices.Rebalance}.String())
	require.Equal(t, "spot at 1970-01-01T00:00:01Z", notices.Notice{Kind: notices.Spot, Deadline: time.Unix(1, 0)}.String())
}
