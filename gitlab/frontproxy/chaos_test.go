package frontproxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// history is a book that remembers in which order things happened, and that fails at
// random: before or after it has done what it was asked.
type history struct {
	sync.Mutex
	random  *rand.Rand
	faults  bool
	orders  map[spillway.MachineID]bool
	open    map[spillway.JobID]spillway.MachineID
	invalid []string
	begun   map[string]bool // "job machine": begun while no order stood
	// hangUps ends the open question of a machine, as its hanging up does.
	hangUps map[spillway.MachineID]context.CancelFunc
}

// desk is a machine that takes what is offered, and never ends it.
const desk = "desk"

var errChaos = errors.New("chaos")

// fault decides whether a call fails, and whether it does its work all the same.
func (h *history) fault() (fails, works bool) {
	if !h.faults || h.random.IntN(10) > 0 {
		return false, true
	}
	return true, h.random.IntN(2) == 0
}

func (h *history) BeginRouted(_ context.Context, j store.RoutedJob) (bool, error) {
	h.Lock()
	defer h.Unlock()
	if hangUp := h.hangUps[j.Machine]; hangUp != nil && h.random.IntN(5) == 0 {
		hangUp()
	}
	fails, works := h.fault()
	begun := false
	if works && (!h.orders[j.Machine] || h.open[j.ID] == j.Machine) {
		h.open[j.ID], begun = j.Machine, true
		h.begun[string(j.ID)+" "+string(j.Machine)] = true
	}
	if fails {
		return false, errChaos
	}
	return begun, nil
}

func (h *history) EndRouted(_ context.Context, id spillway.JobID) (bool, error) {
	h.Lock()
	defer h.Unlock()
	fails, works := h.fault()
	_, was := h.open[id]
	if works {
		delete(h.open, id)
	}
	if fails {
		return false, errChaos
	}
	return was, nil
}

func (h *history) Ordered(_ context.Context, _ string, id spillway.MachineID) (router.DrainOrder, bool, error) {
	h.Lock()
	defer h.Unlock()
	if fails, _ := h.fault(); fails {
		return router.DrainOrder{}, false, errChaos
	}
	return router.DrainOrder{}, h.orders[id], nil
}

func (h *history) ConfirmRouted(context.Context, spillway.JobID) (store.Confirmation, error) {
	return store.Unbooked, errChaos
}

func (h *history) Routed(context.Context, string, bool) (store.RoutedBook, error) {
	return store.RoutedBook{}, errChaos
}

// order orders a machine, or takes that back. A machine that has no job when it is
// ordered may be gone from then on: whoever gets a job there loses it.
func (h *history) order(id spillway.MachineID, on bool) {
	h.Lock()
	defer h.Unlock()
	h.orders[id] = on
	if on {
		for key := range h.begun {
			job, machine, _ := strings.Cut(key, " ")
			if machine == string(id) && h.open[spillway.JobID(job)] != id {
				delete(h.begun, key) // not in the book as the order was written: it must never arrive
			}
		}
	}
}

// delivered is called when a machine has a job in its hands.
func (h *history) delivered(job spillway.JobID, id spillway.MachineID) {
	h.Lock()
	defer h.Unlock()
	if !h.begun[string(job)+" "+string(id)] {
		h.invalid = append(h.invalid, fmt.Sprintf("job %s came to %s without having been begun there before an order", job, id))
	}
	if h.open[job] != id {
		h.invalid = append(h.invalid, fmt.Sprintf("job %s runs on %s and is booked on %q", job, id, h.open[job]))
	}
}

// asks has the question of a machine end when the test wants it.
func (h *history) asks(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithCancel(r.Context())
		defer cancel()
		h.Lock()
		h.hangUps[spillway.MachineID(r.Header.Get("X-Machine"))] = cancel
		h.Unlock()
		next.ServeHTTP(w, r.WithContext(ctx))
	})
}

// take has the desk run a job, if nobody else has got it.
func (h *history) take(q *queue, job []byte) bool {
	var got struct {
		ID int64 `json:"id"`
	}
	if json.Unmarshal(job, &got) != nil || !q.take(got.ID) {
		return false
	}
	h.Lock()
	defer h.Unlock()
	h.open[spillway.JobID(strconv.FormatInt(got.ID, 10))] = desk
	return true
}

// queue is a GitLab that gives jobs, and gives those that are kept to whoever asks next:
// sooner than a real one would.
type queue struct {
	sync.Mutex
	random *rand.Rand
	jobs   []int64
	next   int64
	taken  []int64 // by the desk
}

func (q *queue) take(id int64) bool {
	q.Lock()
	defer q.Unlock()
	i := slices.Index(q.jobs, id)
	if i < 0 {
		return false
	}
	q.jobs = slices.Delete(q.jobs, i, i+1)
	q.taken = append(q.taken, id)
	return true
}

func (q *queue) keep(id int64) {
	q.Lock()
	defer q.Unlock()
	q.jobs = append(q.jobs, id)
}

func (q *queue) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	_, _ = io.Copy(io.Discard, r.Body)
	if r.Method == http.MethodPut {
		w.WriteHeader(http.StatusOK)
		return
	}
	q.Lock()
	if len(q.jobs) == 0 {
		q.next++
		q.jobs = append(q.jobs, q.next)
	}
	id := q.jobs[0]
	q.jobs = q.jobs[1:]
	breaks, none := q.random.IntN(20) == 0, q.random.IntN(5) == 0
	if none || breaks {
		q.jobs = append(q.jobs, id)
	}
	q.Unlock()
	switch {
	case none:
		w.WriteHeader(http.StatusNoContent)
	case breaks:
		panic(http.ErrAbortHandler)
	default:
		gives(http.StatusCreated, payload(id, 100)).ServeHTTP(w, r)
	}
}

// TestNoJobIsDeliveredAfterAnOrderUnlessItWasBookedBefore lets machines ask, hang up and
// end jobs while they are ordered to drain and released, over a store that fails.
func TestNoJobIsDeliveredAfterAnOrderUnlessItWasBookedBefore(t *testing.T) {
	for round := range 20 {
		seed := uint64(round)
		t.Run(strconv.Itoa(round), func(t *testing.T) { chaos(t, seed, round%2 == 1) })
	}
}

func chaos(t *testing.T, seed uint64, faults bool) {
	const machines, questions = 5, 40
	h := &history{
		random: rand.New(rand.NewPCG(seed, 1)), faults: faults, orders: map[spillway.MachineID]bool{},
		open: map[spillway.JobID]spillway.MachineID{}, begun: map[string]bool{}, hangUps: map[spillway.MachineID]context.CancelFunc{},
	}
	q := &queue{random: rand.New(rand.NewPCG(seed, 2))}
	s := newStand(t, q, func(o *frontproxy.Options) {
		o.Book = h
		o.Keep = func(_ context.Context, id int64, _ string) error {
			q.keep(id)
			return nil
		}
		o.Fail = nil
		o.Offer = func(_ context.Context, job []byte, _ route.Caller) bool { return h.take(q, job) }
	})
	s.front.Config.Handler = h.asks(s.proxy)
	var group sync.WaitGroup
	stop := make(chan struct{})
	orders := make(chan struct{})
	go func() {
		defer close(orders)
		random := rand.New(rand.NewPCG(seed, 3))
		for {
			select {
			case <-stop:
				return
			default:
				h.order(spillway.MachineID("s_"+strconv.Itoa(random.IntN(machines))), random.IntN(3) > 0)
			}
		}
	}()
	for i := range machines {
		group.Go(func() {
			machine(s, h, spillway.MachineID("s_"+strconv.Itoa(i)), rand.New(rand.NewPCG(seed, 10+uint64(i))), questions)
		})
	}
	group.Wait()
	close(stop)
	<-orders
	require.Empty(t, h.invalid, "seed %d", seed)
	for _, id := range q.taken {
		require.Equal(t, spillway.MachineID(desk), h.open[spillway.JobID(strconv.FormatInt(id, 10))], "a job that another machine has was struck: seed %d", seed)
	}
}

// machine asks for jobs and ends what it gets, as a runner of capacity one does.
func machine(s *stand, h *history, id spillway.MachineID, random *rand.Rand, questions int) {
	for range questions {
		ctx, cancel := context.WithCancel(context.Background())
		hangsUp := random.IntN(6) == 0
		if hangsUp {
			go cancel()
		}
		if job, ok := askOnce(ctx, s, id); ok {
			h.delivered(job, id)
			endOnce(s, job)
		}
		cancel()
	}
}

func endOnce(s *stand, job spillway.JobID) {
	request, err := http.NewRequestWithContext(context.Background(), http.MethodPut, s.front.URL+"/api/v4/jobs/"+string(job), strings.NewReader(`{"state":"success"}`))
	if err != nil {
		return
	}
	if resp, err := http.DefaultClient.Do(request); err == nil {
		_ = resp.Body.Close()
	}
}

// askOnce asks for a job; ok says that all of one arrived.
func askOnce(ctx context.Context, s *stand, id spillway.MachineID) (job spillway.JobID, ok bool) {
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, s.front.URL+"/api/v4/jobs/request", strings.NewReader(question(string(id), true)))
	if err != nil {
		return "", false
	}
	request.Header.Set("X-Machine", string(id))
	resp, err := http.DefaultClient.Do(request)
	if err != nil {
		return "", false
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusCreated {
		return "", false
	}
	var got struct {
		ID int64 `json:"id"`
	}
	if json.NewDecoder(resp.Body).Decode(&got) != nil {
		return "", false
	}
	return spillway.JobID(strconv.FormatInt(got.ID, 10)), true
}
