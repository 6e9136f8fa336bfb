package gcemig

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/iterator"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

const (
	// watchPoll is how often a zone's operations are listed. A preempted instance has 30
	// seconds; its agent hears of it from the metadata server and is mostly first.
	watchPoll = 15 * time.Second
	// listTimeout bounds the list of one place, the wait for its turn in the budget
	// included: a watch has no deadline of the control plane's.
	listTimeout = time.Minute
	// watchOverlap is how much later than it began an operation may come into the list.
	watchOverlap = time.Minute
	// regroup is how often it is looked which zones the groups are in [polls].
	regroup = 40
	// maxOperationsRead bounds the operations of one zone that one poll reads [entries].
	maxOperationsRead = 1_000
	// preempted are the operations to look for (compute/docs/samples/
	// compute-preemptible-history).
	preempted = `operationType="compute.instances.preempted"`
)

// Watch implements pluginsdk.Provider. It lists the operations in which Google took
// instances back; notices before that are the agents'. What it can't read for a while
// it reads later. A lack of permission ends it.
func (p *Provider) Watch(ctx context.Context, ids []string, notify func(pluginsdk.Interruption)) error {
	if err := pluginsdk.CheckGroups(ids); err != nil {
		return err
	}
	s, err := p.configured.Get()
	if err != nil {
		return err
	}
	w := &watch{session: s, ids: ids, notify: notify, since: s.now(), told: make(map[uint64]time.Time)}
	tick := time.NewTicker(watchPoll)
	defer tick.Stop()
	for {
		if err := w.poll(ctx); err != nil && ctx.Err() == nil && !passes(err) {
			return err
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
	}
}

// passes reports whether an error may be over at the next poll.
func passes(err error) bool {
	return errors.Is(err, pluginsdk.ErrTransient) || errors.Is(err, pluginsdk.ErrThrottled)
}

// watch is one call of Watch.
type watch struct {
	*session
	ids    []string
	notify func(pluginsdk.Interruption)
	since  time.Time
	polls  int
	bases  map[string][]base    // by zone
	told   map[uint64]time.Time // operations, and when they began
}

// base is what the names of a group's instances begin with.
type base struct{ prefix, group string }

func (w *watch) poll(ctx context.Context) error {
	if w.bases == nil || w.polls%regroup == 0 {
		if err := w.findBases(ctx); err != nil && (w.bases == nil || !passes(err)) {
			return err
		}
	}
	w.polls++
	horizon := w.now().Add(-watchOverlap)
	if horizon.Before(w.since) {
		horizon = w.since
	}
	var failed error
	for _, zone := range slices.Sorted(maps.Keys(w.bases)) {
		err := w.pollZone(ctx, zone, horizon)
		if err != nil && !passes(err) {
			return err
		}
		failed = cmp.Or(failed, err) // of one zone: the others may be well
	}
	maps.DeleteFunc(w.told, func(_ uint64, at time.Time) bool { return at.Before(horizon) })
	return failed
}

// findBases looks where the groups are. A group that is not there has no instances.
func (w *watch) findBases(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(len(w.scopes))*listTimeout)
	defer cancel()
	found, errs := w.readGroups(ctx, w.ids)
	if len(errs) > 0 {
		return anyOf(errs)
	}
	w.bases = make(map[string][]base)
	for g, igm := range found {
		for _, zone := range g.zones(igm) {
			// A pattern of digits ("runner-###") is no part of the names.
			prefix := strings.TrimRight(igm.GetBaseInstanceName(), "#-") + "-"
			w.bases[zone] = append(w.bases[zone], base{prefix, g.id})
		}
	}
	for _, list := range w.bases {
		slices.SortFunc(list, func(a, b base) int { // the longest that fits
			return cmp.Or(len(b.prefix)-len(a.prefix), cmp.Compare(a.group, b.group))
		})
	}
	return nil
}

// pollZone reads the zone's operations, the newest first, back to the horizon.
func (w *watch) pollZone(ctx context.Context, zone string, horizon time.Time) error {
	ctx, cancel := context.WithTimeout(ctx, listTimeout)
	defer cancel()
	ctx, release := w.paced.bind(ctx)
	defer release()
	it := w.zoneOperations.List(ctx, &computepb.ListZoneOperationsRequest{
		Project: w.project, Zone: zone, Filter: new(preempted), OrderBy: new("creationTimestamp desc"),
	})
	old := false
	list, _, err := upTo(w.clients, maxOperationsRead, func() (*computepb.Operation, error) {
		if old {
			return nil, iterator.Done
		}
		op, err := it.Next()
		old = err == nil && began(op).Before(horizon)
		return op, err
	})
	if err != nil {
		return err
	}
	for _, op := range list {
		w.tell(zone, op, horizon)
	}
	return nil
}

// tell tells of an operation, once. The instance is named by its number, so that a
// notice that comes late is not taken for one about its successor.
func (w *watch) tell(zone string, op *computepb.Operation, horizon time.Time) {
	at := began(op)
	if _, again := w.told[op.GetId()]; again || at.Before(horizon) || op.GetTargetId() == 0 {
		return
	}
	name := last(op.GetTargetLink())
	i := slices.IndexFunc(w.bases[zone], func(b base) bool { return strings.HasPrefix(name, b.prefix) })
	if i < 0 {
		return
	}
	w.told[op.GetId()] = at
	// When the operation is listed some of the 30 seconds have gone; how many is not known.
	w.notify(pluginsdk.Interruption{
		Group: w.bases[zone][i].group, InstanceID: strconv.FormatUint(op.GetTargetId(), 10), Kind: pluginsdk.SpotInterruption,
	})
}

// began is when the operation was asked for; zero if it doesn't say.
func began(op *computepb.Operation) time.Time {
	at, _ := time.Parse(time.RFC3339, op.GetInsertTime())
	return at
}
