package store_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

const (
	// shortly is the timeout of the stores here, and soon what an operation may take
	// on a busy machine.
	shortly = 500 * time.Millisecond
	soon    = 5 * time.Second
)

func numberID(i int) string { return strconv.Itoa(9_000_000_000 + 13*i) }

func classA() spillway.JobClass { return spillway.Requirement{Tags: []string{"a"}}.Class() }

// operations are one of each kind. write says whether it changes anything.
func operations(s *store.Store) map[string]struct {
	write bool
	do    func(context.Context) error
} {
	type op = struct {
		write bool
		do    func(context.Context) error
	}
	ref := router.JobRef{ID: "1", Class: classA(), Attempt: 1}
	return map[string]op{
		"claim": {true, func(ctx context.Context) error {
			_, err := s.Claim(ctx, "r", []router.ClaimWant{{Class: classA(), Pool: "p", N: 1}}, time.Minute)
			return err
		}},
		"apply": {true, func(ctx context.Context) error {
			errs, err := s.Apply(ctx, []store.Transition{{Ref: ref, To: spillway.Completed}})
			if err != nil && errs[0] == nil {
				return fmt.Errorf("the item has no error")
			}
			return err
		}},
		"release": {true, func(ctx context.Context) error { _, err := s.Release(ctx, []store.Release{{Ref: ref}}); return err }},
		"renew": {true, func(ctx context.Context) error {
			_, err := s.Renew(ctx, []router.JobRef{ref}, time.Minute)
			return err
		}},
		"reject": {true, func(ctx context.Context) error {
			_, err := s.Reject(ctx, classA(), time.Now(), 1, spillway.JobResult{State: spillway.Rejected})
			return err
		}},
		"acquire": {true, func(ctx context.Context) error { _, err := s.Acquire(ctx, "l", "h", time.Minute); return err }},
		"hold": {true, func(ctx context.Context) error {
			_, err := s.HoldLeases(ctx, []string{"l"}, "h", time.Minute)
			return err
		}},
		"state":  {true, func(ctx context.Context) error { return s.SavePoolState(ctx, "p", 1, nil) }},
		"ledger": {true, func(ctx context.Context) error { return s.AppendLedger(ctx, "p", 1, nil) }},
		"drain":  {true, func(ctx context.Context) error { return s.OrderDrain(ctx, "p", []router.DrainOrder{{Machine: "m"}}) }},
		"board":  {true, func(ctx context.Context) error { return s.PutBoard(ctx, "b", 1, nil, time.Minute) }},
		"fact":   {true, func(ctx context.Context) error { return s.PublishFact(ctx, "t", nil) }},
		"poke":   {true, func(ctx context.Context) error { return s.PublishPoke(ctx) }},
		"begin": {true, func(ctx context.Context) error {
			now := time.Now()
			_, err := s.BeginRouted(ctx, store.RoutedJob{ID: "1", Pool: "p", Machine: "m", Begun: now, Until: now.Add(time.Hour)})
			return err
		}},
		// These begin with a look, so that a server that says nothing has changed nothing.
		"confirm":   {false, func(ctx context.Context) error { _, err := s.ConfirmRouted(ctx, "1"); return err }},
		"end":       {false, func(ctx context.Context) error { _, err := s.EndRouted(ctx, "1"); return err }},
		"routed":    {false, func(ctx context.Context) error { _, err := s.Routed(ctx, "p", true); return err }},
		"ordered":   {false, func(ctx context.Context) error { _, _, err := s.Ordered(ctx, "p", "m"); return err }},
		"see board": {false, func(ctx context.Context) error { _, _, err := s.Board(ctx, "b"); return err }},
		"facts":     {false, func(ctx context.Context) error { _, err := s.Facts(ctx, "t"); return err }},
		"counts":    {false, func(ctx context.Context) error { _, err := s.Counts(ctx); return err }},
		"get":       {false, func(ctx context.Context) error { _, err := s.Get(ctx, "1"); return err }},
		"list":      {false, func(ctx context.Context) error { _, _, err := s.List(ctx, nil, 1, ""); return err }},
		"machines":  {false, func(ctx context.Context) error { _, err := s.Machines(ctx); return err }},
		"drains":    {false, func(ctx context.Context) error { _, err := s.Drains(ctx, "p"); return err }},
		"load":      {false, func(ctx context.Context) error { _, _, err := s.LoadPoolState(ctx, "p"); return err }},
		"read view": {false, func(ctx context.Context) error { _, err := s.ReadView(ctx, "p", time.Second, nil); return err }},
		"ping":      {false, func(ctx context.Context) error { return s.Ping(ctx) }},
		"subscribe": {false, func(ctx context.Context) error { _, err := s.Subscribe(ctx); return err }},
	}
}

func openShortly(t *testing.T, addr string) *store.Store {
	t.Helper()
	return openFor(t, addr, shortly)
}

func openFor(t *testing.T, addr string, timeout time.Duration) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: timeout})
	require.NoError(t, err)
	return closeAtEnd(t, s)
}

func TestOpenWithoutRedis(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	addr := l.Addr().String()
	require.NoError(t, l.Close())
	_, err = store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: shortly})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.ErrorContains(t, err, addr)
	require.ErrorContains(t, err, "start it")
}

func TestOpenWithBadOptions(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]store.Options{
		"no address":              {},
		"two addresses":           {Addrs: []string{"a:1", "b:1"}},
		"cluster and sentinel":    {Addrs: []string{"a:1"}, Cluster: true, MasterName: "m"},
		"database of a cluster":   {Addrs: []string{"a:1"}, Cluster: true, Database: 1},
		"a prefix with a brace":   {Addrs: []string{"a:1"}, Prefix: "x{"},
		"a negative duration":     {Addrs: []string{"a:1"}, Timeout: -1},
		"a negative bound":        {Addrs: []string{"a:1"}, MaxQueued: -1},
		"a negative finished ttl": {Addrs: []string{"a:1"}, FinishedTTL: -1},
	} {
		_, err := store.Open(t.Context(), o)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, store.ErrUnavailable, name)
	}
}

func TestPasswords(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t, "--user", "spillway", "on", ">right", "~spw:*", "&spw:*", "+@all", "--user", "default", "off")
	_, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Username: "spillway", Password: "wrong"})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.NotContains(t, err.Error(), "wrong\"")
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Username: "spillway", Password: "right"})
	require.NoError(t, err)
	closeAtEnd(t, s)
	outcomes, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
	require.NoError(t, err)
	require.Equal(t, []store.PushOutcome{store.Accepted}, outcomes)
}

// A server that is gone: nothing was written, and everybody learns it soon.
func TestRedisGoesAway(t *testing.T) {
	t.Parallel()
	server := storetest.StartServer(t)
	s := openShortly(t, server.Addr)
	events, err := s.Subscribe(t.Context())
	require.NoError(t, err)
	pokes, err := s.Pokes(t.Context())
	require.NoError(t, err)
	server.Stop()
	for name, op := range operations(s) {
		start := time.Now()
		err := op.do(t.Context())
		require.Less(t, time.Since(start), soon, name)
		require.ErrorIs(t, err, store.ErrUnavailable, name)
		require.NotErrorIs(t, err, store.ErrUnknown, name)
	}
	outcomes, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.Equal(t, []store.PushOutcome{0}, outcomes)

	// It comes back empty, without our scripts, at the same address.
	server.Start(t)
	outcomes = nil
	require.Eventually(t, func() bool {
		outcomes, err = s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
		return err == nil
	}, soon, 10*time.Millisecond)
	require.Equal(t, []store.PushOutcome{store.Accepted}, outcomes)
	require.True(t, within(t, events).Lost)
	within(t, pokes)
}

func within[T any](t *testing.T, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(2 * soon):
		require.FailNow(t, "nothing came")
		panic("unreachable")
	}
}

// A server that hangs: a write may have happened, a read has changed nothing.
func TestRedisHangs(t *testing.T) {
	t.Parallel()
	server := storetest.StartServer(t)
	s := openShortly(t, server.Addr)
	require.NoError(t, s.Ping(t.Context()))
	for name, op := range operations(s) {
		// One connection is open, so that the command is sent and then nothing comes.
		require.NoError(t, s.Ping(t.Context()))
		require.NoError(t, server.Signal(syscall.SIGSTOP))
		start := time.Now()
		err := op.do(t.Context())
		require.NoError(t, server.Signal(syscall.SIGCONT))
		require.Less(t, time.Since(start), soon, name)
		if op.write {
			require.ErrorIs(t, err, store.ErrUnknown, name)
		} else {
			require.ErrorIs(t, err, store.ErrUnavailable, name)
		}
	}
	require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil }, soon, 10*time.Millisecond)
}

func TestScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	s := openShortly(t, storetest.StartRedis(t))
	for i := range 3 {
		store.ForgetScripts(t, s)
		outcomes, err := s.Push(t.Context(), []spillway.Job{simpleJob(numberID(i), "a")})
		require.NoError(t, err)
		require.Equal(t, []store.PushOutcome{store.Accepted}, outcomes)
	}
}

func TestEpochGrowsOverALoss(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	s := openShortly(t, addr)
	var last uint64
	for i := range 20 {
		lease, err := s.Acquire(t.Context(), "l", strconv.Itoa(i), time.Minute)
		require.NoError(t, err)
		require.Greater(t, lease.Epoch, last)
		last = lease.Epoch
		if i%2 == 0 {
			_, err = storetest.Command(addr, "FLUSHALL")
			require.NoError(t, err)
			require.Eventually(t, func() bool { return uint64(time.Now().UnixMilli())<<10 > last }, soon, time.Millisecond)
		} else {
			require.NoError(t, s.ReleaseLease(t.Context(), lease))
		}
	}
}

func TestSentinel(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{storetest.StartSentinel(t, "mymaster")}, MasterName: "mymaster"})
	require.NoError(t, err)
	closeAtEnd(t, s)
	outcomes, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
	require.NoError(t, err)
	require.Equal(t, []store.PushOutcome{store.Accepted}, outcomes)
}

func TestClassesAreBounded(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{storetest.StartRedis(t)}, Timeout: 30 * time.Second})
	require.NoError(t, err)
	closeAtEnd(t, s)
	jobs := make([]spillway.Job, store.MaxClasses+1)
	for i := range jobs {
		jobs[i] = simpleJob(numberID(i), strconv.Itoa(i))
	}
	outcomes, err := s.Push(t.Context(), jobs)
	require.NoError(t, err)
	require.Equal(t, store.Accepted, outcomes[store.MaxClasses-1])
	require.Equal(t, store.Full, outcomes[store.MaxClasses])
	counts, err := s.Counts(t.Context())
	require.NoError(t, err)
	require.Len(t, counts, store.MaxClasses)
}

// No key holds the work of a job that has ended.
func TestWorkIsDropped(t *testing.T) {
	t.Parallel()
	addr := storetest.StartRedis(t)
	s := openShortly(t, addr)
	const canary = "canary-7f3a"
	j := simpleJob("1", "a")
	j.Script, j.Env = "echo "+canary, map[string]string{"TOKEN": canary}
	_, err := s.Push(t.Context(), []spillway.Job{j})
	require.NoError(t, err)
	claimed, err := s.Claim(t.Context(), "r", []router.ClaimWant{{Class: classA(), Pool: "p", N: 1}}, time.Minute)
	require.NoError(t, err)
	require.True(t, dumpContains(t, addr, canary), "the test must be able to find it")
	_, err = s.Apply(t.Context(), []store.Transition{{Ref: claimed[0].Ref, To: spillway.Completed}})
	require.NoError(t, err)
	require.False(t, dumpContains(t, addr, canary))
}

// dumpContains looks for text in everything that the server holds.
func dumpContains(t *testing.T, addr, text string) bool {
	t.Helper()
	dir, err := storetest.Command(addr, "CONFIG", "GET", "dir")
	require.NoError(t, err)
	_, err = storetest.Command(addr, "CONFIG", "SET", "rdbcompression", "no")
	require.NoError(t, err)
	_, err = storetest.Command(addr, "SAVE")
	require.NoError(t, err)
	b, err := os.ReadFile(dir + "/dump.rdb")
	require.NoError(t, err)
	return containsBytes(b, text)
}
