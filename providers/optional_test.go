package providers

import (
	"context"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// cloudWith is a plugin in this process whose optional calls are functions; a nil one
// is one that it can't do.
type cloudWith struct {
	cloud
	findings func(ctx context.Context, groups []string) ([]pluginsdk.Finding, error)
	count    func(ctx context.Context) (pluginsdk.Count, error)
	protect  func(ids []string) error
}

func (c *cloudWith) Findings(ctx context.Context, groups []string) ([]pluginsdk.Finding, error) {
	if c.findings == nil {
		return pluginsdk.Unsupported{}.Findings(ctx, groups)
	}
	return c.findings(ctx, groups)
}

func (c *cloudWith) Count(ctx context.Context, name string) (pluginsdk.Count, error) {
	if c.count == nil {
		return pluginsdk.Unsupported{}.Count(ctx, name)
	}
	return c.count(ctx)
}

func (c *cloudWith) Protect(ctx context.Context, group string, ids []string, on bool) error {
	if c.protect == nil {
		return pluginsdk.Unsupported{}.Protect(ctx, group, ids, on)
	}
	return c.protect(ids)
}

func plugged(t *testing.T, c *cloudWith, o Observer) *Plugin {
	t.Helper()
	p, err := InProcess(t.Context(), Spec{Name: "aws"}, c, Options{Observer: o})
	require.NoError(t, err)
	return p
}

func goodFinding(group string) pluginsdk.Finding {
	return pluginsdk.Finding{Group: group, Code: "az_rebalance", Severity: pluginsdk.FindingWarning, Message: "m", Fix: "f"}
}

func TestFindingsArePagedAndBounded(t *testing.T) {
	var pages []int
	p := plugged(t, &cloudWith{findings: func(_ context.Context, groups []string) ([]pluginsdk.Finding, error) {
		pages = append(pages, len(groups))
		f := goodFinding(groups[0])
		f.Message, f.Fix = strings.Repeat("é", maxTextBytes), strings.Repeat("x", maxTextBytes+1)
		return []pluginsdk.Finding{f}, nil
	}}, Observer{})
	groups := make([]string, pluginsdk.MaxGroupsPerCall+1)
	for i := range groups {
		groups[i] = itoa(i)
	}
	found, err := p.Findings(t.Context(), groups)
	require.NoError(t, err)
	require.Equal(t, []int{1_000, 1}, pages)
	require.Len(t, found, 2)
	require.Equal(t, []string{"0", "1000"}, []string{found[0].Group, found[1].Group})
	require.LessOrEqual(t, len(found[0].Message), maxTextBytes)
	require.Len(t, found[0].Fix, maxTextBytes)

	found, err = p.Findings(t.Context(), nil)
	require.NoError(t, err)
	require.Empty(t, found, "nobody was asked")
}

// TestT5_HostileFindings: refused as a whole.
func TestT5_HostileFindings(t *testing.T) {
	many := make([]pluginsdk.Finding, pluginsdk.MaxFindings+1)
	for i := range many {
		many[i] = goodFinding("g")
	}
	spoilt := func(spoil func(*pluginsdk.Finding)) []pluginsdk.Finding {
		bad := goodFinding("g")
		spoil(&bad)
		return []pluginsdk.Finding{goodFinding("g"), bad}
	}
	find := func(answer []pluginsdk.Finding) error {
		p := plugged(t, &cloudWith{findings: func(context.Context, []string) ([]pluginsdk.Finding, error) { return answer, nil }}, Observer{})
		_, err := p.Findings(t.Context(), []string{"g"})
		return err
	}
	require.NoError(t, find(many[1:]))
	require.NoError(t, find(spoilt(func(f *pluginsdk.Finding) { f.Severity = pluginsdk.FindingInfo })))
	for name, answer := range map[string][]pluginsdk.Finding{
		"too many":      many,
		"foreign group": spoilt(func(f *pluginsdk.Finding) { f.Group = "other" }),
		"no code":       spoilt(func(f *pluginsdk.Finding) { f.Code = "" }),
		"no snake_case": spoilt(func(f *pluginsdk.Finding) { f.Code = "AzRebalance" }),
		"markup":        spoilt(func(f *pluginsdk.Finding) { f.Code = "<b>" }),
		"long code":     spoilt(func(f *pluginsdk.Finding) { f.Code = strings.Repeat("x", maxFindingCodeBytes+1) }),
		"severity":      spoilt(func(f *pluginsdk.Finding) { f.Severity = "fatal" }),
		"no message":    spoilt(func(f *pluginsdk.Finding) { f.Message = "" }),
	} {
		err := find(answer)
		require.ErrorIs(t, err, pluginsdk.ErrInvalid, name)
		require.ErrorContains(t, err, "the plugin's answer to findings is refused", name)
	}
}

func TestT5_HostileCounts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		now := time.Now()
		count := func(c pluginsdk.Count) (pluginsdk.Count, error) {
			p := plugged(t, &cloudWith{count: func(context.Context) (pluginsdk.Count, error) { return c, nil }}, Observer{})
			return p.Count(t.Context(), "queue")
		}
		for name, c := range map[string]pluginsdk.Count{
			"NaN":           {Jobs: math.NaN(), At: now},
			"infinite":      {Jobs: math.Inf(1), At: now},
			"minus":         {Jobs: -1, At: now},
			"huge":          {Jobs: maxCountedJobs * 1.01, At: now},
			"no time":       {Jobs: 1},
			"in the future": {Jobs: 1, At: now.Add(maxCountLead + 1)},
		} {
			_, err := count(c)
			require.ErrorIs(t, err, pluginsdk.ErrInvalid, name)
			require.ErrorContains(t, err, "the plugin's answer to count is refused", name)
		}
		for _, c := range []pluginsdk.Count{{At: now}, {Jobs: maxCountedJobs, At: now.Add(-time.Hour)}, {Jobs: 2.5, At: now.Add(-1)}} {
			got, err := count(c)
			require.NoError(t, err)
			require.Equal(t, c, got)
		}
		ahead, err := count(pluginsdk.Count{Jobs: 1, At: now.Add(maxCountLead)})
		require.NoError(t, err)
		require.Equal(t, now, ahead.At, "a clock that is a little off makes nothing fresher than it is")

		for _, name := range []string{"", strings.Repeat("x", maxMetricNameBytes+1)} {
			_, err := plugged(t, &cloudWith{}, Observer{}).Count(t.Context(), name)
			require.ErrorIs(t, err, pluginsdk.ErrInvalid)
		}
	})
}

func TestC44_ProtectIsPaged(t *testing.T) {
	var pages []int
	p := plugged(t, &cloudWith{protect: func(ids []string) error {
		if pages = append(pages, len(ids)); len(pages) == 3 {
			return kindErr(pluginsdk.KindThrottled)
		}
		return nil
	}}, Observer{})
	ids := make([]string, 20_000)
	for i := range ids {
		ids[i] = itoa(i)
	}
	require.NoError(t, p.Protect(t.Context(), "g", ids[:1_001], true))
	require.ErrorIs(t, p.Protect(t.Context(), "g", ids, true), pluginsdk.ErrThrottled)
	require.Equal(t, []int{1_000, 1, 1_000}, pages, "no page after the one that failed")
	require.ErrorIs(t, p.Protect(t.Context(), "g", []string{"i", ""}, true), pluginsdk.ErrInvalid)
}

func TestCallsThatNoPoolMakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var done []CallDone
		hang := func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		p := plugged(t, &cloudWith{
			findings: func(ctx context.Context, _ []string) ([]pluginsdk.Finding, error) { return nil, hang(ctx) },
			count:    func(ctx context.Context) (pluginsdk.Count, error) { return pluginsdk.Count{}, hang(ctx) },
			protect:  func([]string) error { return nil },
		}, Observer{CallDone: func(d CallDone) { done = append(done, d) }})
		_, err := p.Findings(t.Context(), []string{"g"})
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = p.Count(t.Context(), "queue")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		require.NoError(t, p.Protect(t.Context(), "g", []string{"i"}, true))
		var ops []Op
		var took []time.Duration
		for _, d := range done {
			require.Equal(t, "aws", d.Provider)
			ops, took = append(ops, d.Op), append(took, d.Duration)
		}
		require.Equal(t, []Op{OpFindings, OpCount, OpProtect}, ops)
		require.Equal(t, []time.Duration{2 * time.Minute, 30 * time.Second, 0}, took)
		require.Contains(t, done[1].String(), "count of provider aws failed after 30s")
	})
}

func TestAPluginThatCanNoneOfIt(t *testing.T) {
	p := plugged(t, &cloudWith{}, Observer{})
	_, findErr := p.Findings(t.Context(), []string{"g"})
	_, countErr := p.Count(t.Context(), "queue")
	for _, err := range []error{findErr, countErr, p.Protect(t.Context(), "g", []string{"i"}, true)} {
		require.ErrorIs(t, err, pluginsdk.ErrUnsupported)
	}
}
