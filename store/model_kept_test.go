package store_test

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/store"
)

// actions are what is done to a store and to a model of a part of it.
type actions = map[string]func(*rapid.T)

// TestKeptModels does random things to what is kept beside the queue, and to models of it.
func TestKeptModels(t *testing.T) {
	t.Parallel()
	for name, model := range map[string]func(*store.Store, *clock) actions{
		"settings": settingsActions, "work": workActions, "controllers": presenceActions, "board": boardActions,
		"leases": leaseActions, "memory": memoryActions, "seats": seatsActions, "experience": experienceActions, "machines": machinesActions, "views": viewActions,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			rapid.Check(t, func(rt *rapid.T) {
				clock := newClock()
				s, err := store.OpenEmbeddedAt(clock.now, store.Options{MachineTTL: modelMachineTTL})
				require.NoError(rt, err)
				defer func() { require.NoError(rt, s.Close()) }()
				do := model(s, clock)
				do["wait"] = func(t *rapid.T) {
					clock.advance(time.Duration(rapid.IntRange(1, 8_000).Draw(t, "ms")) * time.Millisecond)
				}
				rt.Repeat(do)
			})
		})
	}
}

// letter draws a short name.
func letter(t *rapid.T, of string) string {
	return rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, of)
}

func seconds(t *rapid.T, of string) time.Duration {
	return time.Duration(rapid.IntRange(1, 15).Draw(t, of)) * time.Second
}

// settingsModel is settings by kind and name.
type settingsModel struct {
	s    *store.Store
	kept map[string]map[string][]byte
}

func settingsActions(s *store.Store, _ *clock) actions {
	m := &settingsModel{s: s, kept: map[string]map[string][]byte{"a": {}, "b": {}, "c": {}}}
	return actions{"put": m.put, "create": m.create, "swap": m.swap, "drop": m.drop, "": m.check}
}

func (m *settingsModel) swap(t *rapid.T) {
	kind, name, data := letter(t, "kind"), letter(t, "name"), []byte(letter(t, "data"))
	var was []byte
	if rapid.Bool().Draw(t, "there was one") {
		was = []byte(letter(t, "was"))
	}
	swapped, err := m.s.SwapSetting(t.Context(), kind, name, was, data)
	require.NoError(t, err)
	old, there := m.kept[kind][name]
	require.Equal(t, there == (was != nil) && string(old) == string(was), swapped)
	if swapped {
		m.kept[kind][name] = data
	}
}

func (m *settingsModel) put(t *rapid.T) {
	kind, name, data := letter(t, "kind"), letter(t, "name"), []byte(letter(t, "data"))
	require.NoError(t, m.s.PutSetting(t.Context(), kind, name, data))
	m.kept[kind][name] = data
}

func (m *settingsModel) create(t *rapid.T) {
	kind, name, data := letter(t, "kind"), letter(t, "name"), []byte(letter(t, "data"))
	created, err := m.s.CreateSetting(t.Context(), kind, name, data)
	require.NoError(t, err)
	_, there := m.kept[kind][name]
	require.Equal(t, !there, created)
	if created {
		m.kept[kind][name] = data
	}
}

func (m *settingsModel) drop(t *rapid.T) {
	kind, name := letter(t, "kind"), letter(t, "name")
	dropped, err := m.s.DropSetting(t.Context(), kind, name)
	require.NoError(t, err)
	_, there := m.kept[kind][name]
	require.Equal(t, there, dropped)
	delete(m.kept[kind], name)
}

func (m *settingsModel) check(t *rapid.T) {
	for kind, want := range m.kept {
		got, err := m.s.Settings(t.Context(), kind)
		require.NoError(t, err)
		require.Equal(t, want, got)
	}
}

// workModel is what workers were given, and until when that is kept.
type workModel struct {
	s     *store.Store
	clock *clock
	given map[spillway.MachineID]givenWork
}

type givenWork struct {
	store.Work
	until time.Time
}

func workActions(s *store.Store, c *clock) actions {
	m := &workModel{s: s, clock: c, given: map[spillway.MachineID]givenWork{}}
	return actions{"put": m.put, "drop": m.drop, "": m.check}
}

func drawWork(t *rapid.T) store.Work {
	return store.Work{
		Machine: spillway.MachineID(letter(t, "machine")), Pool: "p", Job: spillway.JobID(letter(t, "job")),
		Attempt: rapid.IntRange(1, 2).Draw(t, "attempt"), Replica: "r", By: letter(t, "by"),
	}
}

func (m *workModel) put(t *rapid.T) {
	w, ttl := drawWork(t), seconds(t, "ttl")
	require.NoError(t, m.s.PutWork(t.Context(), w, ttl))
	m.given[w.Machine] = givenWork{w, m.clock.now().Add(ttl)}
}

func (m *workModel) drop(t *rapid.T) {
	w := drawWork(t)
	require.NoError(t, m.s.DropWork(t.Context(), w))
	if g := m.given[w.Machine]; g.Job == w.Job && g.Attempt == w.Attempt {
		delete(m.given, w.Machine)
	}
}

func (m *workModel) check(t *rapid.T) {
	for _, machine := range []spillway.MachineID{"a", "b", "c"} {
		got, ok, err := m.s.Work(t.Context(), machine)
		require.NoError(t, err)
		g, given := m.given[machine]
		require.Equal(t, given && g.until.After(m.clock.now()), ok, "%s", machine)
		if ok {
			require.Equal(t, g.Work, got)
		}
	}
}

// presenceModel is what replicas have said of their controllers, and when.
type presenceModel struct {
	s     *store.Store
	clock *clock
	said  map[string]saidOf
	until time.Time // all of it is forgotten, unless somebody speaks
}

type saidOf struct {
	at   time.Time
	here []store.ControllerAt
}

func presenceActions(s *store.Store, c *clock) actions {
	m := &presenceModel{s: s, clock: c, said: map[string]saidOf{}}
	return actions{"announce": m.announce, "announce again": m.announce}
}

func (m *presenceModel) announce(t *rapid.T) {
	replica, ttl := letter(t, "replica"), seconds(t, "ttl")
	now := m.clock.now()
	if !m.until.After(now) {
		clear(m.said)
	}
	m.until = now.Add(ttl)
	var here []store.ControllerAt
	for i := range rapid.IntRange(0, 2).Draw(t, "controllers") {
		here = append(here, store.ControllerAt{Controller: fmt.Sprint("c", i), Instances: i + 1, Asked: rapid.IntRange(0, 9).Draw(t, "asked")})
	}
	delete(m.said, replica)
	if here != nil {
		m.said[replica] = saidOf{now, here}
	}
	got, err := m.s.AnnounceControllers(t.Context(), replica, here, ttl)
	require.NoError(t, err)
	var want []store.ControllerAt
	for replica, said := range m.said {
		if !said.at.After(now.Add(-ttl)) {
			delete(m.said, replica)
			continue
		}
		for _, c := range said.here {
			c.Replica, c.At = replica, said.at
			want = append(want, c)
		}
	}
	require.ElementsMatch(t, want, got)
}

// boardModel is one board, and the newest epoch that has written it.
type boardModel struct {
	s     *store.Store
	clock *clock
	data  []byte
	epoch uint64
	until time.Time
}

func boardActions(s *store.Store, c *clock) actions {
	m := &boardModel{s: s, clock: c}
	return actions{"put": m.put, "": m.check}
}

func (m *boardModel) put(t *rapid.T) {
	epoch, ttl := rapid.Uint64Range(1, 9).Draw(t, "epoch"), seconds(t, "ttl")
	data := []byte(letter(t, "data"))
	err := m.s.PutBoard(t.Context(), "b", epoch, data, ttl)
	if epoch < m.epoch {
		require.ErrorIs(t, err, store.ErrStaleEpoch)
		return
	}
	require.NoError(t, err)
	m.data, m.epoch, m.until = data, epoch, m.clock.now().Add(ttl)
}

func (m *boardModel) check(t *rapid.T) {
	data, found, err := m.s.Board(t.Context(), "b")
	require.NoError(t, err)
	require.Equal(t, m.until.After(m.clock.now()), found)
	if found {
		require.Equal(t, m.data, data)
	}
}

// memoryModel is what a pool's loop remembers.
type memoryModel struct {
	s      *store.Store
	epoch  uint64
	state  []byte
	ledger [][]byte // newest first
}

func memoryActions(s *store.Store, _ *clock) actions {
	m := &memoryModel{s: s}
	return actions{"state": m.save, "ledger": m.add, "": m.check}
}

// fenced reports whether a write of an epoch was taken, and whether that was right.
func (m *memoryModel) fenced(t *rapid.T, epoch uint64, err error) bool {
	if epoch < m.epoch {
		require.ErrorIs(t, err, store.ErrStaleEpoch)
		return false
	}
	require.NoError(t, err)
	m.epoch = epoch
	return true
}

func (m *memoryModel) save(t *rapid.T) {
	epoch, state := rapid.Uint64Range(1, 9).Draw(t, "epoch"), []byte(letter(t, "state"))
	if m.fenced(t, epoch, m.s.SavePoolState(t.Context(), "p", epoch, state)) {
		m.state = state
	}
}

func (m *memoryModel) add(t *rapid.T) {
	epoch, entry := rapid.Uint64Range(1, 9).Draw(t, "epoch"), []byte(letter(t, "entry"))
	if m.fenced(t, epoch, m.s.AppendLedger(t.Context(), "p", epoch, entry)) {
		m.ledger = slices.Insert(m.ledger, 0, entry)
	}
}

func (m *memoryModel) check(t *rapid.T) {
	state, found, err := m.s.LoadPoolState(t.Context(), "p")
	require.NoError(t, err)
	require.Equal(t, m.state != nil, found)
	require.Equal(t, m.state, state)
	entries, err := m.s.Ledger(t.Context(), "p", 5)
	require.NoError(t, err)
	require.True(t, slices.EqualFunc(m.ledger[:min(5, len(m.ledger))], entries, bytes.Equal), "%q, read as %q", m.ledger, entries)
	_, found, err = m.s.LoadPoolState(t.Context(), "another")
	require.NoError(t, err)
	require.False(t, found)
}
