package store_test

import (
	"context"
	"errors"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// operation is one call to a store. write says whether its first word to the server may
// change anything: those that begin with a look have changed nothing when it says nothing.
type operation struct {
	write bool
	do    func(context.Context) error
}

// operations are one of each kind, in groups.
var operations = map[string]func(*store.Store) map[string]operation{
	"queue": queueOperations, "admission": admissionOperations, "pool": poolOperations, "kept": keptOperations, "told": toldOperations,
}

// outcome is the second of two results.
func outcome[T any](_ T, err error) error { return err }

// forEach is outcome, for calls that also have an error for each item: where the call
// failed, they say so.
func forEach(errs []error, err error) error {
	if err != nil && errs[0] == nil {
		return errors.New("the item has no error")
	}
	return err
}

func queueOperations(s *store.Store) map[string]operation {
	ref := router.JobRef{ID: "1", Class: classA(), Attempt: 1}
	return map[string]operation{
		"claim": {true, func(ctx context.Context) error {
			return outcome(s.Claim(ctx, "r", []router.ClaimWant{{Class: classA(), Pool: "p", N: 1}}, time.Minute))
		}},
		"apply": {true, func(ctx context.Context) error {
			return forEach(s.Apply(ctx, []store.Transition{{Ref: ref, To: spillway.Completed}}))
		}},
		"release": {true, func(ctx context.Context) error { return forEach(s.Release(ctx, []store.Release{{Ref: ref}})) }},
		"renew":   {true, func(ctx context.Context) error { return outcome(s.Renew(ctx, []router.JobRef{ref}, time.Minute)) }},
		"reject": {true, func(ctx context.Context) error {
			return outcome(s.Reject(ctx, classA(), time.Minute, 1, spillway.JobResult{State: spillway.Rejected}))
		}},
		"push": {true, func(ctx context.Context) error {
			outcomes, err := s.Push(ctx, []spillway.Job{simpleJob("1", "a")})
			if err != nil && outcomes[0] != 0 {
				return errors.New("the job has an outcome")
			}
			return err
		}},
		"cancel":      {false, func(ctx context.Context) error { return outcome(s.Cancel(ctx, []spillway.JobID{"1"}, "why")) }},
		"retry":       {false, func(ctx context.Context) error { return outcome(s.Retry(ctx, "1", "why")) }},
		"reap":        {false, func(ctx context.Context) error { return outcome(s.Reap(ctx, 1)) }},
		"counts":      {false, func(ctx context.Context) error { return outcome(s.Counts(ctx)) }},
		"get":         {false, func(ctx context.Context) error { return outcome(s.Get(ctx, "1")) }},
		"get many":    {false, func(ctx context.Context) error { return outcome(s.GetMany(ctx, []spillway.JobID{"1"})) }},
		"list":        {false, func(ctx context.Context) error { _, _, err := s.List(ctx, nil, 1, ""); return err }},
		"quarantined": {false, func(ctx context.Context) error { _, _, err := s.Quarantined(ctx, 1, ""); return err }},
	}
}

func admissionOperations(s *store.Store) map[string]operation {
	ref := router.JobRef{ID: "1", Class: classA(), Attempt: 1}
	return map[string]operation{
		"review": {true, func(ctx context.Context) error {
			return outcome(s.ClaimForReview(ctx, []store.ReviewWant{{Class: classA(), N: 1}}, time.Minute))
		}},
		"end reviews": {true, func(ctx context.Context) error {
			return forEach(s.EndReviews(ctx, []store.ReviewEnd{{Ref: ref, To: spillway.Admitted}}))
		}},
		"fail absent": {true, func(ctx context.Context) error {
			result := spillway.JobResult{State: spillway.Failed}
			return outcome(s.FailAbsent(ctx, classA(), []string{"c"}, "c", time.Minute, 1, result))
		}},
		"announce": {true, func(ctx context.Context) error {
			return outcome(s.AnnounceControllers(ctx, "r", []store.ControllerAt{{Controller: "c"}}, time.Minute))
		}},
	}
}

func poolOperations(s *store.Store) map[string]operation {
	machines := []router.Machine{{ID: "m", Pool: "p"}}
	routed := func() store.RoutedJob {
		now := time.Now()
		return store.RoutedJob{ID: "1", Pool: "p", Machine: "m", Begun: now, Until: now.Add(time.Hour)}
	}
	return map[string]operation{
		"put machines":    {true, func(ctx context.Context) error { return s.PutMachines(ctx, machines) }},
		"remove machines": {true, func(ctx context.Context) error { return s.RemoveMachines(ctx, "p", []spillway.MachineID{"m"}) }},
		"machines":        {false, func(ctx context.Context) error { return outcome(s.Machines(ctx)) }},
		"machine":         {false, func(ctx context.Context) error { _, _, err := s.Machine(ctx, "p", "m"); return err }},
		"drain":           {true, func(ctx context.Context) error { return s.OrderDrain(ctx, "p", []router.DrainOrder{{Machine: "m"}}) }},
		"drains":          {false, func(ctx context.Context) error { return outcome(s.Drains(ctx, "p")) }},
		"drains of pools": {false, func(ctx context.Context) error { return outcome(s.DrainsOf(ctx, []string{"p", "q"})) }},
		"ordered":         {false, func(ctx context.Context) error { _, _, err := s.Ordered(ctx, "p", "m"); return err }},
		"begin":           {true, func(ctx context.Context) error { return outcome(s.BeginRouted(ctx, routed())) }},
		"confirm":         {false, func(ctx context.Context) error { return outcome(s.ConfirmRouted(ctx, "1")) }},
		"end":             {false, func(ctx context.Context) error { return outcome(s.EndRouted(ctx, "1")) }},
		"routed":          {false, func(ctx context.Context) error { return outcome(s.Routed(ctx, "p", true)) }},
		"put work": {true, func(ctx context.Context) error {
			return s.PutWork(ctx, store.Work{Machine: "m", Pool: "p", Job: "1", Attempt: 1}, time.Minute)
		}},
		"work": {false, func(ctx context.Context) error { _, _, err := s.Work(ctx, "m"); return err }},
		"drop work": {true, func(ctx context.Context) error {
			return s.DropWork(ctx, store.Work{Machine: "m", Pool: "p", Job: "1", Attempt: 1})
		}},
		"take seat": {true, func(ctx context.Context) error { return outcome(s.TakeSeat(ctx, "p", "m", 1, time.Minute)) }},
		"keep seats": {true, func(ctx context.Context) error {
			return s.KeepSeats(ctx, map[string][]spillway.MachineID{"p": {"m"}}, time.Minute)
		}},
		"leave seat": {true, func(ctx context.Context) error { return s.LeaveSeat(ctx, "p", "m") }},
		"state":      {true, func(ctx context.Context) error { return s.SavePoolState(ctx, "p", 1, nil) }},
		"load":       {false, func(ctx context.Context) error { _, _, err := s.LoadPoolState(ctx, "p"); return err }},
		"ledger":     {true, func(ctx context.Context) error { return s.AppendLedger(ctx, "p", 1, nil) }},
		"see ledger": {false, func(ctx context.Context) error { return outcome(s.Ledger(ctx, "p", 1)) }},
	}
}

func keptOperations(s *store.Store) map[string]operation {
	lease := store.Lease{Name: "l", Holder: "h", Epoch: 1}
	view := map[spillway.JobClass][]spillway.JobID{classA(): {"1"}}
	return map[string]operation{
		"acquire":        {true, func(ctx context.Context) error { return outcome(s.Acquire(ctx, "l", "h", time.Minute)) }},
		"renew lease":    {true, func(ctx context.Context) error { return outcome(s.RenewLease(ctx, lease, time.Minute)) }},
		"release lease":  {true, func(ctx context.Context) error { return s.ReleaseLease(ctx, lease) }},
		"hold":           {true, func(ctx context.Context) error { return outcome(s.HoldLeases(ctx, []string{"l"}, "h", time.Minute)) }},
		"board":          {true, func(ctx context.Context) error { return s.PutBoard(ctx, "b", 1, nil, time.Minute) }},
		"see board":      {false, func(ctx context.Context) error { _, _, err := s.Board(ctx, "b"); return err }},
		"put setting":    {true, func(ctx context.Context) error { return s.PutSetting(ctx, "k", "n", nil) }},
		"create setting": {true, func(ctx context.Context) error { return outcome(s.CreateSetting(ctx, "k", "n", nil)) }},
		"swap setting":   {true, func(ctx context.Context) error { return outcome(s.SwapSetting(ctx, "k", "n", nil, nil)) }},
		"drop setting":   {true, func(ctx context.Context) error { return outcome(s.DropSetting(ctx, "k", "n")) }},
		"settings":       {false, func(ctx context.Context) error { return outcome(s.Settings(ctx, "k")) }},
		"experience": {true, func(ctx context.Context) error {
			_, _, err := s.ShareExperience(ctx, 0, router.Experience{})
			return err
		}},
		"write view": {false, func(ctx context.Context) error { return s.WriteView(ctx, "p", "r", time.Second, view) }},
		"read view":  {false, func(ctx context.Context) error { return outcome(s.ReadView(ctx, "p", time.Second, nil)) }},
	}
}

func toldOperations(s *store.Store) map[string]operation {
	notice := store.Notice{Pool: "p", Instance: "i", Kind: router.InterruptionSpot}
	return map[string]operation{
		"fact":          {true, func(ctx context.Context) error { return s.PublishFact(ctx, "t", nil) }},
		"poke":          {true, func(ctx context.Context) error { return s.PublishPoke(ctx) }},
		"notice":        {true, func(ctx context.Context) error { return s.PublishNotice(ctx, notice) }},
		"facts":         {false, func(ctx context.Context) error { return outcome(s.Facts(ctx, "t")) }},
		"notices":       {false, func(ctx context.Context) error { return outcome(s.Notices(ctx)) }},
		"pokes":         {false, func(ctx context.Context) error { return outcome(s.Pokes(ctx)) }},
		"drain pokes":   {false, func(ctx context.Context) error { return outcome(s.DrainPokes(ctx)) }},
		"setting pokes": {false, func(ctx context.Context) error { return outcome(s.SettingPokes(ctx, "k")) }},
		"canceled":      {false, func(ctx context.Context) error { return outcome(s.Canceled(ctx)) }},
		"subscribe":     {false, func(ctx context.Context) error { return outcome(s.Subscribe(ctx)) }},
		"ping":          {false, func(ctx context.Context) error { return s.Ping(ctx) }},
	}
}
