package scaler

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/scaler/roster"
)

func (p *Pool) remove(ctx context.Context, now time.Time, removals []roster.Removal) (string, error) {
	ids := make([]string, len(removals))
	names := make([]string, len(removals))
	for i, r := range removals {
		ids[i], names[i] = r.Instance, r.Instance+": "+string(r.Evidence)
	}
	if err := p.mayWrite(); err != nil {
		for _, id := range ids {
			p.notRemoved(id, err)
		}
		return "remove(" + listNames(names) + ")", err
	}
	sent := time.Now()
	results, err := p.group.Remove(ctx, ids)
	info := CallInfo{Pool: p.Name(), Op: "remove", Args: listNames(names), At: now, Sent: sent}
	var errs []error
	for _, id := range ids[min(len(results), len(ids)):] {
		p.notRemoved(id, err) // no answer: it may be there still, and is looked at anew
	}
	for _, r := range results {
		switch r.Outcome {
		case pluginsdk.Removed:
			p.seen.status.Desired--
			p.state.Policy.Held = max(0, p.state.Policy.Held-1)
			info.Removed = append(info.Removed, r.ID)
		case pluginsdk.AlreadyGone:
		case pluginsdk.NotRemoved:
			p.notRemoved(r.ID, r.Err)
			errs = append(errs, instanceError(r.ID, r.Err))
		}
	}
	info.Took, info.Err = time.Since(sent), errors.Join(append(errs, err)...)
	p.events.called(info)
	return "remove(" + info.Args + ")", info.Err
}

// notRemoved notes what is still there. Where nothing was done it may be asked about at
// any time; else in its time.
func (p *Pool) notRemoved(id string, err error) {
	if err != nil && nothingDone(err) {
		p.book.RemoveRefused(id)
		return
	}
	p.book.RemoveFailed(id)
}

// nothingDone reports whether the provider was not asked, or refused and says when to ask
// again.
func nothingDone(err error) bool {
	return errors.Is(err, errTenure) || shortWait(providerError(err)) > 0
}

// instanceError is what one instance's refusal means for the call.
func instanceError(id string, err error) error {
	if pluginsdk.KindOf(err) == pluginsdk.KindInvalid {
		return fmt.Errorf("%w: %s: %w", errInstance, id, err)
	}
	return fmt.Errorf("%s: %w", id, err)
}

// replaceInPlace turns launches of this tick, and removals of broken instances, into
// reports: the group replaces each in its place, which is one call for two and lets
// nobody see a number between. A launch has passed every bound, so that the group
// may even launch first. Where nothing is launched now, what replaces a broken
// instance is there already or not wanted, and it is removed by name.
func (p *Pool) replaceInPlace(pl *plan) {
	if p.seen.noReports || pl.launched <= 0 {
		return
	}
	var rest []roster.Removal
	for _, r := range pl.removals {
		if r.Evidence == roster.Unhealthy && len(pl.reports) < pl.launched {
			pl.reports = append(pl.reports, r)
		} else {
			rest = append(rest, r)
		}
	}
	pl.removals = rest
	pl.launched -= len(pl.reports)
	if pl.target -= len(pl.reports); pl.target <= p.seen.status.Desired {
		pl.target = -1
	}
}

func (p *Pool) reportUnhealthy(ctx context.Context, now time.Time, reports []roster.Removal) (string, error) {
	ids := make([]string, len(reports))
	for i, r := range reports {
		ids[i] = r.Instance
	}
	err := p.call(ctx, "report_unhealthy", ids, now, p.group.ReportUnhealthy)
	switch {
	case err == nil:
		p.state.AskedAt = now // for what the group launches in their place
		return "report_unhealthy(" + listNames(ids) + ")", nil
	case errors.Is(err, pluginsdk.ErrUnsupported):
		p.seen.noReports = true
		for _, id := range ids {
			p.book.RemoveRefused(id) // by name then
		}
	default:
		for _, id := range ids {
			p.notRemoved(id, err)
		}
	}
	return "report_unhealthy(" + listNames(ids) + ")", err
}

// releases are the instances that a hook of the group holds for no more reason. A
// group that is halted either way is somebody else's.
func (p *Pool) releases(now time.Time) []roster.Release {
	st := p.seen.status
	if p.seen.noHooks || (st.LaunchHalt != "" && st.RemovalHalt != "") {
		return nil
	}
	releases := p.book.Releases(now)
	p.book.ReleaseAsked(now, releases)
	return releases
}

// release lets the hooks' instances go. Whatever comes of it, it says nothing of
// whether the group launches: the lists tell who is still held.
func (p *Pool) release(ctx context.Context, now time.Time, releases []roster.Release) (string, error) {
	ids := make([]string, len(releases))
	for i, r := range releases {
		ids[i] = r.Instance
	}
	err := p.call(ctx, "complete_hook", ids, now, p.group.CompleteHook)
	switch {
	case err == nil:
		return "complete_hook(" + listNames(ids) + ")", nil
	case errors.Is(err, pluginsdk.ErrUnsupported):
		p.seen.noHooks = true
	case nothingDone(err):
		p.book.ReleaseRefused(releases)
	default:
		err = fmt.Errorf("%w: %w", errInstance, err)
	}
	return "complete_hook(" + listNames(ids) + ")", err
}

// call is a write that names instances and answers for all of them at once.
func (p *Pool) call(ctx context.Context, op string, ids []string, now time.Time, do func(context.Context, []string) error) error {
	if err := p.mayWrite(); err != nil {
		return err
	}
	sent := time.Now()
	err := do(ctx, ids)
	p.events.called(CallInfo{Pool: p.Name(), Op: op, Args: listNames(ids), At: now, Sent: sent, Took: time.Since(sent), Err: err})
	return err
}
