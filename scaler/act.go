package scaler

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/demand"
	"github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/policy"
	"github.com/spillway-ci/spillway/scaler/roster"
)

// plan is what one tick will do. It is made whole, persisted, then carried out.
type plan struct {
	orders   []roster.Order
	removals []roster.Removal
	reports  []roster.Removal // broken ones that the group replaces in their place
	releases []roster.Release
	withdraw bool
	target   int // SetDesired; −1 = no call
	launched int
	asked    time.Time // when more was asked for before
	oldest   time.Time // submission of the oldest job that the launch is for; zero = not for a job
}

func (pl *plan) empty() bool {
	return len(pl.orders) == 0 && len(pl.removals) == 0 && len(pl.reports) == 0 && len(pl.releases) == 0 &&
		!pl.withdraw && pl.target < 0
}

// plan turns the decision into orders and calls, and marks the book accordingly.
func (p *Pool) plan(now time.Time, d policy.Decision, o policy.Observation) plan {
	pl := plan{target: -1}
	if p.policy.Paused {
		return pl
	}
	pl.orders = append(pl.orders, p.book.TakeBack(d.Undrain)...)
	pl.orders = append(pl.orders, p.book.SecondLook(now)...)
	pl.orders = append(pl.orders, p.book.Leaving(now)...)
	pl.orders = append(pl.orders, p.book.Drain(now, d.Remove)...)
	if o.GroupAge != policy.Whole || p.seen.err != nil || p.throttled(now) || p.until.Sub(now) <= WriteDeadline {
		return pl // nothing is written to a group that isn't known, or in the last seconds of a tenure
	}
	pl.withdraw = d.Withdraw > 0 || (p.givenUp(now) && p.canWithdraw(now) && p.unfilled(p.book.Census(now)) > 0)
	if p.withdrewLately(now) || p.seen.status.RemovalHalt != "" || p.book.Exposed() {
		pl.withdraw = false
	}
	pl.removals = p.removals(now, o) // last: what goes is no longer counted from here on
	if d.GroupTarget > p.seen.status.Desired {
		pl.target, pl.launched = d.GroupTarget, d.Launch
	}
	p.replaceInPlace(&pl)
	pl.releases = p.releases(now)
	if pl.target >= 0 {
		pl.asked, p.state.AskedAt = p.state.AskedAt, now
	}
	return pl
}

// withdrawAgain is how long a provider is not asked again that can't take anything
// back. It may be able to later: the instance that kept it from that may be gone.
const withdrawAgain = 5 * time.Minute

func (p *Pool) canWithdraw(now time.Time) bool { return !now.Before(p.seen.noWithdraw) }

// withdrewLately: once is enough. Within a cool-off there is no other call, and what
// the last one has left can't be taken back a tick later either.
func (p *Pool) withdrewLately(now time.Time) bool {
	return p.state.CoolOff.Active(now) && !p.seen.withdrewAt.Before(p.state.CoolOff.FailedAt) ||
		p.seen.withdrewTo == p.seen.status.Desired && now.Sub(p.seen.withdrewAt) < p.rules.RemoveRetry
}

// removals bounds who may be removed by what the group's own minimum allows and
// by the limit of one tick.
func (p *Pool) removals(now time.Time, o policy.Observation) []roster.Removal {
	if p.seen.status.RemovalHalt != "" {
		return nil
	}
	whole := o.DemandAge == policy.Whole
	all := p.book.Removals(now, whole && o.NoScaleIn == "")
	if whole && (o.NoScaleIn == "" || o.NoScaleIn == policy.ReasonHoldUnready) { // Lost itself is careful when many are
		all = append(all, p.book.Lost(now)...)
	}
	room := max(0, o.GroupDesired-o.GroupMin)
	limit := p.policy.MaxRemovalsPerTick
	if limit == 0 {
		limit = maxRemovalsPerTick
	}
	var out []roster.Removal
	for _, r := range all {
		if len(out) >= room {
			break
		}
		if r.Evidence == roster.Idle {
			if limit == 0 {
				continue
			}
			limit--
		}
		out = append(out, r)
	}
	p.book.RemoveAsked(now, out)
	return out
}

// carryOut persists and acts. Each act is recorded with what came of it.
func (p *Pool) carryOut(ctx context.Context, now time.Time, d policy.Decision, pl plan) Result {
	entry := LedgerEntry{
		At: now, Pool: p.Name(), From: d.From, To: d.Desired, Direction: d.Direction, Reason: d.Reason,
		LimitedBy: d.LimitedBy, Trace: d.Trace, Epoch: p.epoch,
	}
	if err := p.persist(ctx); err != nil {
		p.events.trouble(TroubleInfo{Pool: p.Name(), At: now, Doing: "persisting before acting", Err: err})
		p.forget()
		return Result{}
	}
	if pl.empty() {
		p.record(ctx, entry)
		return Result{}
	}
	var res Result
	var did, failed []string
	do := func(what string, err error) {
		did = append(did, what)
		if err != nil {
			failed = append(failed, what+": "+err.Error())
			p.judge(now, err, &res)
		}
	}
	if len(pl.orders) > 0 {
		if what, err := p.order(ctx, now, pl.orders); what != "" {
			do(what, err)
		}
	}
	before := p.seen.status.Desired
	if len(pl.reports) > 0 {
		do(p.reportUnhealthy(ctx, now, pl.reports))
	}
	if len(pl.removals) > 0 {
		do(p.remove(ctx, now, pl.removals))
		if entry.Direction == policy.None { // the end of a scale-in that was decided earlier
			entry.Direction, entry.Reason = policy.In, policy.ReasonIdle
		}
	}
	if pl.withdraw && !p.throttled(now) {
		do(p.takeBackUnfilled(ctx, now))
	}
	// The target counts what has just been removed and taken back as still in the
	// group. If that failed it counts who knows what: the next tick looks first.
	wanted := pl.target >= 0
	pl.target -= before - p.seen.status.Desired
	switch {
	case wanted && pl.target > p.seen.status.Desired && len(failed) == 0:
		do(p.setDesired(ctx, now, pl))
	case wanted:
		p.state.AskedAt = pl.asked // not asked after all
	}
	if len(pl.releases) > 0 && !p.throttled(now) {
		do(p.release(ctx, now, pl.releases))
	}
	res.Acted = true
	if len(did) > 0 {
		entry.Action, entry.Result = strings.Join(did, "; "), "ok"
	}
	if len(failed) > 0 {
		entry.Result = strings.Join(failed, "; ")
	}
	p.record(ctx, entry)
	return res
}

// forget drops what could not be persisted: the pool is taken over afresh from
// the store at the next tick.
func (p *Pool) forget() { p.afresh = true }

// mayWrite reports whether a write that is sent now would end within the tenure, however
// long what this tick asked before has taken.
func (p *Pool) mayWrite() error {
	at := p.tickedAt.Add(p.now().Sub(p.began))
	if epoch, until, ok := p.tenure.Hold(p.Name(), at); !ok || epoch != p.epoch || until.Sub(at) <= WriteDeadline {
		return errTenure
	}
	return nil
}

// judge sorts an error: a conflict means look again, an unknown outcome means look
// before anything is written, a refusal cools the pool off.
func (p *Pool) judge(now time.Time, err error, res *Result) {
	switch {
	case errors.Is(err, errOrder):
		return // the store's trouble, not the provider's: the book is taken over afresh
	case errors.Is(err, errTenure):
		return // whoever has the pool next looks first
	}
	e := providerError(err)
	switch {
	case p.throttle(now, e), e.Kind == pluginsdk.KindUnsupported:
	case errors.Is(err, errInstance):
		p.seen.mustLook = true
	case e.Kind == pluginsdk.KindConflict:
		p.seen.status.Desired, p.seen.mustLook = e.Observed, true
		res.Again = true
	default:
		p.seen.mustLook = true
		p.state.CoolOff.Failed(now, e)
		res.Respill = true
	}
}

var (
	// errOrder marks a drain that could not be put on record.
	errOrder = errors.New("drain not recorded")
	// errInstance marks a refusal that concerns single instances, and says nothing of
	// whether the group would launch.
	errInstance = errors.New("not for these instances")
	// errTenure marks a write that was not sent, because another replica might have the
	// pool before it ends.
	errTenure = errors.New("not asked: the lease ends too soon")
)

// order says what was ordered, empty where all of it stood already: a drain that nobody
// acknowledges, as where a hook is what stops the runner, is one decision however often
// it is said.
func (p *Pool) order(ctx context.Context, now time.Time, orders []roster.Order) (string, error) {
	out := make([]router.DrainOrder, 0, len(orders))
	names := make([]string, 0, len(orders))
	for _, o := range orders {
		out = append(out, router.DrainOrder{Machine: spillway.MachineID(o.Machine), On: o.On, Reason: o.Reason})
		if o.Again {
			continue
		}
		verb := "undrain"
		if o.On {
			verb = "drain"
		}
		names = append(names, verb+"("+o.Instance+")")
	}
	err := p.machines.OrderDrain(ctx, p.Name(), out)
	if err != nil {
		p.events.trouble(TroubleInfo{Pool: p.Name(), At: now, Doing: "ordering drains", Err: err})
		p.forget()
		err = fmt.Errorf("%w: %w", errOrder, err)
		if len(names) == 0 {
			return "drain again", err
		}
	}
	return listNames(names), err
}

// maxNames bounds the instances that one ledger entry names.
const maxNames = 20

func listNames(names []string) string {
	if more := len(names) - maxNames; more > 0 {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:maxNames], ", "), more)
	}
	return strings.Join(names, ", ")
}

func (p *Pool) setDesired(ctx context.Context, now time.Time, pl plan) (string, error) {
	before := p.seen.status.Desired
	args := fmt.Sprintf("%d, expected %d", pl.target, before)
	if err := p.mayWrite(); err != nil {
		p.state.AskedAt = pl.asked
		return "set_desired(" + args + ")", err
	}
	sent := time.Now()
	got, err := p.group.SetDesired(ctx, pl.target, before)
	p.events.called(CallInfo{
		Pool: p.Name(), Op: "set_desired", Args: args, At: now, Sent: sent, Took: time.Since(sent), Err: err,
		Launched: pl.launched, OldestJob: pl.oldest,
	})
	if kind := pluginsdk.KindOf(err); err != nil && kind != pluginsdk.KindTransient {
		p.state.AskedAt = pl.asked // refused: what was asked for earlier is no younger for it
	}
	if err == nil {
		p.seen.status.Desired = got
		p.state.KeptAt, p.seen.withdrewAt = time.Time{}, time.Time{} // what was left then is not what is asked for now
		p.state.CoolOff.Asked(now)
		p.reacted = now
	}
	return "set_desired(" + args + ")", err
}

func (p *Pool) takeBackUnfilled(ctx context.Context, now time.Time) (string, error) {
	if err := p.mayWrite(); err != nil {
		return "withdraw", err
	}
	expected := p.seen.status.Desired
	p.seen.withdrewAt = now
	sent := time.Now()
	got, err := p.group.Withdraw(ctx, expected)
	p.events.called(CallInfo{
		Pool: p.Name(), Op: "withdraw", Args: fmt.Sprintf("expected %d", expected), At: now, Sent: sent, Took: time.Since(sent), Err: err,
	})
	switch {
	case err == nil:
		p.seen.status.Desired, p.seen.withdrewTo = got.Desired, got.Desired
		if got.Withdrawn > 0 {
			p.state.Kept, p.state.KeptAt = got.Desired, now
		}
	case errors.Is(err, pluginsdk.ErrUnsupported):
		p.seen.noWithdraw = now.Add(withdrawAgain)
	}
	return fmt.Sprintf("withdraw(%d)", got.Withdrawn), err
}

// record writes the decision to the ledger if it did something or its reason is
// new. A ledger that can't be written is trouble, not a reason to stop.
func (p *Pool) record(ctx context.Context, e LedgerEntry) {
	if e.Action == "" && e.Reason == p.last.Reason && e.LimitedBy == p.last.LimitedBy && e.To == p.last.To {
		return
	}
	p.last = e
	p.events.decided(e)
	if err := p.appendLedger(ctx, e); err != nil {
		p.events.trouble(TroubleInfo{Pool: p.Name(), At: e.At, Doing: "writing the ledger", Err: err})
	}
}

// oldestLaunchJob is when the oldest job was submitted that only a launch can
// serve, among the jobs that no earlier call was made for; zero without one.
func oldestLaunchJob(pic *Picture, pool string, after time.Time) time.Time {
	var oldest time.Time
	for _, f := range pic.Attribution.Flows {
		at := pic.Classes[f.Class].Oldest
		if f.Pool == pool && f.Stage == demand.LaunchPlaces && at.After(after) && (oldest.IsZero() || at.Before(oldest)) {
			oldest = at
		}
	}
	return oldest
}
