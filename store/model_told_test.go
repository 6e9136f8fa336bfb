package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// TestToldModel publishes random things, and whoever listens hears them all, in their
// order, and nothing else.
func TestToldModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		s, err := store.OpenEmbedded()
		require.NoError(rt, err)
		defer func() { require.NoError(rt, s.Close()) }()
		m := newToldModel(rt, s)
		rt.Repeat(actions{"fact": m.fact, "notice": m.notice, "poke": m.poke, "drain": m.drain, "setting": m.setting})
		m.check(rt)
	})
}

// toldModel is what was published, and what was heard.
type toldModel struct {
	s        *store.Store
	facts    map[string]*heardOf[string]
	notices  heardOf[store.Notice]
	pokes    pokeOf
	drains   pokeOf
	settings pokeOf
}

// heardOf is what was said and a channel that hears it.
type heardOf[T any] struct {
	said  []T
	heard func() T
}

// pokeOf is whether somebody is to be poked, and how.
type pokeOf struct {
	due   bool
	fires <-chan struct{}
}

func newToldModel(t *rapid.T, s *store.Store) *toldModel {
	m := &toldModel{s: s, facts: map[string]*heardOf[string]{}}
	m.listen(t)
	return m
}

func (m *toldModel) listen(t *rapid.T) {
	for _, topic := range []string{"a", "b", "c"} {
		facts, err := m.s.Facts(t.Context(), topic)
		require.NoError(t, err)
		m.facts[topic] = &heardOf[string]{heard: func() string { return string(hear(t, facts)) }}
	}
	notices, err := m.s.Notices(t.Context())
	require.NoError(t, err)
	m.notices.heard = func() store.Notice { return hear(t, notices) }
	m.pokes.fires, err = m.s.Pokes(t.Context())
	require.NoError(t, err)
	m.drains.fires, err = m.s.DrainPokes(t.Context())
	require.NoError(t, err)
	m.settings.fires, err = m.s.SettingPokes(t.Context(), "a")
	require.NoError(t, err)
}

func hear[T any](t *rapid.T, from <-chan T) (v T) {
	select {
	case v = <-from:
	case <-time.After(soon):
		require.FailNow(t, "nothing came")
	}
	return v
}

func (m *toldModel) fact(t *rapid.T) {
	topic, fact := letter(t, "topic"), letter(t, "fact")
	require.NoError(t, m.s.PublishFact(t.Context(), topic, []byte(fact)))
	m.facts[topic].said = append(m.facts[topic].said, fact)
}

func (m *toldModel) notice(t *rapid.T) {
	n := store.Notice{Pool: letter(t, "pool"), Instance: letter(t, "instance"), Kind: router.InterruptionSpot}
	require.NoError(t, m.s.PublishNotice(t.Context(), n))
	m.notices.said = append(m.notices.said, n)
}

func (m *toldModel) poke(t *rapid.T) {
	require.NoError(t, m.s.PublishPoke(t.Context()))
	m.pokes.due = true
}

func (m *toldModel) drain(t *rapid.T) {
	require.NoError(t, m.s.OrderDrain(t.Context(), "p", []router.DrainOrder{{Machine: "m", On: true}}))
	m.drains.due = true
}

func (m *toldModel) setting(t *rapid.T) {
	kind := letter(t, "kind")
	require.NoError(t, m.s.PutSetting(t.Context(), kind, "n", nil))
	m.settings.due = m.settings.due || kind == "a"
}

// check hears everything.
func (m *toldModel) check(t *rapid.T) {
	for topic, of := range m.facts {
		require.Equal(t, of.said, of.all(), "%s", topic)
	}
	require.Equal(t, m.notices.said, m.notices.all())
	for name, p := range map[string]pokeOf{"pokes": m.pokes, "drains": m.drains, "settings": m.settings} {
		if p.due {
			hear(t, p.fires)
			continue
		}
		select {
		case <-p.fires:
			require.Fail(t, "poked for nothing", name)
		default:
		}
	}
}

func (h *heardOf[T]) all() (all []T) {
	for range h.said {
		all = append(all, h.heard())
	}
	return all
}
