package frontproxy_test

import (
	"context"
	"io"
	"net/http"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// turns answers the proxy as a desk does, and notes what the proxy says.
func turns(s **stand, may, atOnce bool, meanwhile func()) func(*frontproxy.Options) {
	return func(o *frontproxy.Options) {
		o.Turn = func(_ context.Context, who route.Caller) (bool, bool) {
			(*s).log.add("turn of %s", who.System)
			if meanwhile != nil {
				meanwhile()
			}
			return may, atOnce
		}
		o.Asking = func(who route.Caller) func(bool) {
			(*s).log.add("%s asks", who.System)
			return func(noJob bool) { (*s).log.add("%s asked, no job: %v", who.System, noJob) }
		}
	}
}

func TestA06_AMachineWhoseTurnItIsNotIsToldThatThereIsNoJob(t *testing.T) {
	var s *stand
	s = newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }), turns(&s, false, true, nil))
	a := s.ask("s_1")
	require.Equal(t, http.StatusNoContent, a.status)
	require.Equal(t, "lu-1", a.header.Get("X-GitLab-Last-Update"), "its own, so that it misses nothing")
	require.Equal(t, "turn of s_1\nwithheld s_1 spillover", s.log.all())
	require.Zero(t, s.contacts.open())
}

func TestA06_GitLabDoesNotHoldAQuestionBeforeWhichOthersMayGo(t *testing.T) {
	asked := make(chan string, 1)
	gitlab := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, _ := io.ReadAll(r.Body)
		asked <- string(body)
		require.Equal(t, int64(len(body)), r.ContentLength)
		w.WriteHeader(http.StatusNoContent)
	})
	for _, atOnce := range []bool{true, false} {
		var s *stand
		s = newStand(t, gitlab, turns(&s, true, atOnce, nil))
		require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
		if body := <-asked; atOnce {
			require.NotContains(t, body, "last_update")
			require.Contains(t, body, "s_1")
		} else {
			require.Equal(t, question("s_1", true), body, "unchanged")
		}
		s.eventually(func() bool { return s.log.all() == "turn of s_1\ns_1 asks\ns_1 asked, no job: true" }, "asked")
	}
}

// What comes while it waits for its turn counts too: an order to drain.
func TestA06_AMachineThatIsOrderedToDrainWhileItWaitsForItsTurnGetsNoJob(t *testing.T) {
	var s *stand
	now := time.Now()
	s = newStand(t, http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("GitLab was asked") }), turns(&s, true, true, func() {
		s.book.order("s_1", true)
		now = now.Add(10 * time.Second)
	}), func(o *frontproxy.Options) { o.Now = func() time.Time { return now } })
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Equal(t, "turn of s_1\nwithheld s_1 ordered", s.log.all())
}

func TestA06_AMachineWithAJobAsksNoLonger(t *testing.T) {
	var s *stand
	s = newStand(t, gives(http.StatusCreated, payload(7, 0)), turns(&s, true, true, nil))
	require.Equal(t, http.StatusCreated, s.ask("s_1").status)
	s.eventually(func() bool { return s.log.all() == "turn of s_1\ns_1 asks\ngiven s_1 7\ns_1 asked, no job: false" }, "asked")
}
