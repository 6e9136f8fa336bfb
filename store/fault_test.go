package store_test

import (
	"errors"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/peertest"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
	"github.com/spillway-ci/spillway/store/storetest"
)

const (
	// patiently is the timeout of the stores of tests: a busy machine may let a server
	// wait. shortly is that of those whose server hangs or is gone, and soon what an
	// operation may take then on a busy machine.
	patiently = time.Minute
	shortly   = 500 * time.Millisecond
	soon      = 40 * time.Second
)

func numberID(i int) string { return strconv.Itoa(9_000_000_000 + 13*i) }

func classA() spillway.JobClass { return spillway.Requirement{Tags: []string{"a"}}.Class() }

func openPatiently(t *testing.T, addr string) *store.Store {
	t.Helper()
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: patiently})
	require.NoError(t, err)
	return closeAtEnd(t, s)
}

// openShortly opens one whose operations soon give up; on a busy machine so may this.
func openShortly(t *testing.T, addr string) *store.Store {
	t.Helper()
	var s *store.Store
	require.Eventually(t, func() bool {
		var err error
		s, err = store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: shortly})
		return err == nil
	}, soon, 10*time.Millisecond)
	return closeAtEnd(t, s)
}

func TestOpenWithoutRedis(t *testing.T) {
	t.Parallel()
	addr := peertest.DeadAddress(t)
	_, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Timeout: patiently})
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
	_, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Username: "spillway", Password: "wrong", Timeout: patiently})
	require.ErrorIs(t, err, store.ErrUnavailable)
	require.NotContains(t, err.Error(), "wrong\"")
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{addr}, Username: "spillway", Password: "right", Timeout: patiently})
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
	s := openPatiently(t, server.Addr)
	events, err := s.Subscribe(t.Context())
	require.NoError(t, err)
	pokes, err := s.Pokes(t.Context())
	require.NoError(t, err)
	server.Stop()
	for _, group := range operations {
		for name, op := range group(s) {
			start := time.Now()
			err := op.do(t.Context())
			require.Less(t, time.Since(start), soon, name)
			require.ErrorIs(t, err, store.ErrUnavailable, name)
			require.NotErrorIs(t, err, store.ErrUnknown, name)
		}
	}

	// It comes back empty, without our scripts, at the same address.
	server.Start(t)
	var outcomes []store.PushOutcome
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
	for name, group := range operations {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := storetest.StartServer(t)
			s := openShortly(t, server.Addr)
			for name, op := range group(s) {
				// One connection is open, so that the command is sent and then nothing comes;
				// and the queue has been counted, so that a push begins with a write.
				counted := func() bool { return outcome(s.Counts(t.Context())) == nil }
				hung := func() error {
					require.Eventually(t, counted, soon, 10*time.Millisecond)
					require.NoError(t, server.Signal(syscall.SIGSTOP))
					start := time.Now()
					err := op.do(t.Context())
					require.NoError(t, server.Signal(syscall.SIGCONT))
					require.Less(t, time.Since(start), soon, name)
					return err
				}
				err := hung()
				// A busy machine may have given up before it sent anything.
				for again := 0; op.write && errors.Is(err, store.ErrUnavailable) && again < 5; again++ {
					err = hung()
				}
				if op.write {
					require.ErrorIs(t, err, store.ErrUnknown, name)
				} else {
					require.ErrorIs(t, err, store.ErrUnavailable, name)
				}
			}
			require.Eventually(t, func() bool { return s.Ping(t.Context()) == nil }, soon, 10*time.Millisecond)
		})
	}
}

func TestScriptsAreSentAgain(t *testing.T) {
	t.Parallel()
	s := openPatiently(t, storetest.StartRedis(t))
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
	s := openPatiently(t, addr)
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
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{storetest.StartSentinel(t, "mymaster")}, MasterName: "mymaster", Timeout: patiently})
	require.NoError(t, err)
	closeAtEnd(t, s)
	outcomes, err := s.Push(t.Context(), []spillway.Job{simpleJob("1", "a")})
	require.NoError(t, err)
	require.Equal(t, []store.PushOutcome{store.Accepted}, outcomes)
}

func TestClassesAreBounded(t *testing.T) {
	t.Parallel()
	s, err := store.Open(t.Context(), store.Options{Addrs: []string{storetest.StartRedis(t)}, Timeout: patiently})
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
	s := openPatiently(t, addr)
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
