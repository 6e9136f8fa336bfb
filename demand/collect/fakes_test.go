package collect

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"iter"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/webhook"
)

var (
	errDown = fmt.Errorf("%w: status 500", gitlab.ErrUnavailable)
	errDead = errors.New("this replica is dead")
)

// fakeGitLab is a GitLab's state. Its zero value has nothing and works.
type fakeGitLab struct {
	mu        sync.Mutex
	jobs      map[int64]gitlab.Job // all there are
	phantoms  []gitlab.Job         // lists name them, whatever became of them
	runners   map[int64]gitlab.Runner
	pipelines map[int64]string
	groups    map[int64][]int64
	err       error           // of every call
	refused   map[int64]error // of looks at single jobs
	hang      bool            // calls answer when their context ends
	broken    error           // of lists, after the jobs
	empty     bool            // lists are good and have nothing
	delay     time.Duration
	calls     map[string]int
}

func (f *fakeGitLab) change(do func(f *fakeGitLab)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	do(f)
}

// put adds jobs, or replaces them.
func (f *fakeGitLab) put(jobs ...gitlab.Job) {
	f.change(func(f *fakeGitLab) {
		if f.jobs == nil {
			f.jobs = map[int64]gitlab.Job{}
		}
		for _, j := range jobs {
			f.jobs[j.ID] = j
		}
	})
}

func (f *fakeGitLab) call(ctx context.Context, name string) error {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[string]int{}
	}
	f.calls[name]++
	err, hang, delay := f.err, f.hang, f.delay
	f.mu.Unlock()
	if hang {
		<-ctx.Done()
		return fmt.Errorf("%w: %w", gitlab.ErrUnavailable, ctx.Err())
	}
	if delay > 0 && !sleep(ctx, delay) {
		return ctx.Err()
	}
	return err
}

func (f *fakeGitLab) count(name string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[name]
}

func (f *fakeGitLab) Jobs(ctx context.Context, _ gitlab.Scope, statuses ...string) iter.Seq2[gitlab.Job, error] {
	return func(yield func(gitlab.Job, error) bool) {
		if err := f.call(ctx, "jobs"); err != nil {
			yield(gitlab.Job{}, err)
			return
		}
		list, broken := f.list(statuses)
		for _, j := range list {
			if !yield(j, nil) {
				return
			}
		}
		if broken != nil {
			yield(gitlab.Job{}, broken)
		}
	}
}

// list is what a list has, and how it breaks off after that.
func (f *fakeGitLab) list(statuses []string) ([]gitlab.Job, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.empty {
		return nil, f.broken
	}
	list := slices.Clone(f.phantoms)
	for _, j := range f.jobs {
		if slices.Contains(statuses, j.Status) {
			list = append(list, j)
		}
	}
	return list, f.broken
}

func (f *fakeGitLab) Job(ctx context.Context, _, id int64) (gitlab.Job, error) {
	if err := f.call(ctx, "job"); err != nil {
		return gitlab.Job{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.refused[id]; err != nil {
		return gitlab.Job{}, err
	}
	j, known := f.jobs[id]
	if !known {
		return gitlab.Job{}, gitlab.ErrNotFound
	}
	return j, nil
}

func (f *fakeGitLab) Pipeline(ctx context.Context, _, id int64) (gitlab.PipelineRef, error) {
	if err := f.call(ctx, "pipeline"); err != nil {
		return gitlab.PipelineRef{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	status, known := f.pipelines[id]
	if !known {
		return gitlab.PipelineRef{}, gitlab.ErrNotFound
	}
	return gitlab.PipelineRef{ID: id, Status: status}, nil
}

func (f *fakeGitLab) Runner(ctx context.Context, id int64) (gitlab.Runner, error) {
	if err := f.call(ctx, "runner"); err != nil {
		return gitlab.Runner{}, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	r, known := f.runners[id]
	if !known {
		return gitlab.Runner{}, gitlab.ErrNotFound
	}
	return r, nil
}

func (f *fakeGitLab) Ancestors(ctx context.Context, project int64) ([]int64, error) {
	if err := f.call(ctx, "ancestors"); err != nil {
		return nil, err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	groups, known := f.groups[project]
	if !known {
		return nil, gitlab.ErrForbidden
	}
	return groups, nil
}

// waiting is a pending job of project 7.
func waiting(id int64, tags ...string) gitlab.Job {
	return gitlab.Job{
		ID: id, Status: "pending", Tags: tags, Project: gitlab.ProjectRef{ID: 7},
		Pipeline: gitlab.PipelineRef{ID: 1000 + id}, QueuedAt: time.Now(),
	}
}

func onRunner(id, runner int64, system string) gitlab.Job {
	j := waiting(id, "a")
	j.Status, j.RunnerID, j.SystemID = "running", runner, system
	return j
}

func with(j gitlab.Job, status string) gitlab.Job {
	j.Status = status
	return j
}

// memory is what replicas share, without a server.
type memory struct {
	mu     sync.Mutex
	leases map[string]spillway.Lease
	epoch  uint64
	boards map[string]memoryBoard
	subs   map[string][]chan []byte
	pokes  int
}

type memoryBoard struct {
	data  []byte
	epoch uint64
	until time.Time
}

func newMemory() *memory {
	return &memory{leases: map[string]spillway.Lease{}, boards: map[string]memoryBoard{}, subs: map[string][]chan []byte{}}
}

// member is the memory as one replica reaches it, until it dies.
type member struct {
	*memory
	dead chan struct{}
}

func (m *memory) member() *member { return &member{memory: m, dead: make(chan struct{})} }

func (m *member) alive() error {
	select {
	case <-m.dead:
		return errDead
	default:
		return nil
	}
}

func (m *member) HoldLeases(_ context.Context, names []string, holder string, ttl time.Duration) (map[string]spillway.Lease, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now, held := time.Now(), map[string]spillway.Lease{}
	for _, name := range names {
		l, known := m.leases[name]
		if known && l.Holder != holder && l.Until.After(now) {
			continue
		}
		if !known || l.Holder != holder || !l.Until.After(now) {
			m.epoch++
			l = spillway.Lease{Name: name, Holder: holder, Epoch: m.epoch}
		}
		l.Until = now.Add(ttl)
		m.leases[name], held[name] = l, l
	}
	return held, nil
}

func (m *member) ReleaseLease(_ context.Context, l spillway.Lease) error {
	if err := m.alive(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.leases[l.Name].Epoch == l.Epoch {
		delete(m.leases, l.Name)
	}
	return nil
}

func (m *member) PutBoard(_ context.Context, name string, epoch uint64, data []byte, ttl time.Duration) error {
	if err := m.alive(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if epoch < m.boards[name].epoch {
		return errors.New("stale epoch")
	}
	m.boards[name] = memoryBoard{data: data, epoch: epoch, until: time.Now().Add(ttl)}
	return nil
}

func (m *member) Board(_ context.Context, name string) ([]byte, bool, error) {
	if err := m.alive(); err != nil {
		return nil, false, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	b, known := m.boards[name]
	if !known || !b.until.After(time.Now()) {
		return nil, false, nil
	}
	return b.data, true, nil
}

func (m *member) PublishFact(_ context.Context, topic string, data []byte) error {
	if err := m.alive(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, sub := range m.subs[topic] {
		select {
		case sub <- data:
		default:
		}
	}
	return nil
}

func (m *member) Facts(ctx context.Context, topic string) (<-chan []byte, error) {
	if err := m.alive(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	sub := make(chan []byte, 256)
	m.subs[topic] = append(m.subs[topic], sub)
	context.AfterFunc(ctx, func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.subs[topic] = slices.DeleteFunc(m.subs[topic], func(c chan []byte) bool { return c == sub })
		close(sub)
	})
	return sub, nil
}

func (m *member) PublishPoke(context.Context) error {
	if err := m.alive(); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.pokes++
	return nil
}

func (m *memory) poked() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.pokes
}

// rig is one replica's source in a synctest bubble, with the view that scalers have.
type rig struct {
	t       *testing.T
	gitlab  *fakeGitLab
	memory  *memory
	member  *member
	source  *GitLab
	sources *Sources
	cancel  context.CancelFunc
	ended   chan struct{}
	trouble *troubles
}

type troubles struct {
	mu   sync.Mutex
	list []string
}

func (r *troubles) add(doing string, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, doing+": "+err.Error())
}

func (r *troubles) all() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.list)
}

// start runs a source until the test ends.
func start(t *testing.T, shared *memory, replica string, g *fakeGitLab, o Options) *rig {
	t.Helper()
	r := &rig{t: t, gitlab: g, memory: shared, member: shared.member(), ended: make(chan struct{}), trouble: new(troubles)}
	o.URL, o.Store, o.Replica = origin, r.member, replica
	if g != nil {
		o.API = g
	}
	if o.Events == nil {
		o.Events = &Events{Trouble: r.trouble.add}
	}
	var err error
	r.source, err = New(o)
	require.NoError(t, err)
	r.sources = NewSources(SourcesOptions{Boards: shared.member(), Origin: origin, Every: r.source.o.Every})
	ctx, cancel := context.WithCancel(t.Context())
	r.cancel = cancel
	go func() {
		defer close(r.ended)
		r.source.Run(ctx)
	}()
	t.Cleanup(r.stop)
	return r
}

func (r *rig) stop() {
	r.cancel()
	<-r.ended
}

// kill ends the source as a crash would: nothing of its is written any more.
func (r *rig) kill() {
	close(r.member.dead)
	r.stop()
}

// settle lets everything happen that is to happen now, and the debounced board.
func settle() {
	synctest.Wait()
	time.Sleep(DefaultDebounce)
	synctest.Wait()
}

func pass(d time.Duration) {
	time.Sleep(d)
	settle()
}

func (r *rig) board() Board {
	r.t.Helper()
	b, err := r.sources.Board(r.t.Context())
	require.NoError(r.t, err)
	return b
}

// demand is the waiting jobs by tags, and whether that is a lower bound.
func (r *rig) demand() (jobs map[string]int, partial bool) {
	r.t.Helper()
	v, err := r.sources.Demand(r.t.Context())
	require.NoError(r.t, err)
	jobs = map[string]int{}
	for _, c := range v.Classes {
		jobs[fmt.Sprint(c.Requirement.Tags)] += c.Pending
	}
	return jobs, v.Partial
}

func (r *rig) requireDemand(want map[string]int, msg ...any) {
	r.t.Helper()
	jobs, partial := r.demand()
	require.Equal(r.t, want, jobs, msg...)
	require.False(r.t, partial, msg...)
}

// hook delivers a job hook to a replica.
func (r *rig) hook(id int64, status string) {
	r.t.Helper()
	s, ok := HookSighting(origin, webhook.Event{JobID: id, ProjectID: 7, Status: status, At: time.Now()}, time.Now())
	require.True(r.t, ok)
	require.NoError(r.t, Tell(r.t.Context(), r.member, s))
}

func (r *rig) status(name string) SourceStatus {
	r.t.Helper()
	all := slices.Concat(r.source.Status(), r.sources.Status())
	i := slices.IndexFunc(all, func(s SourceStatus) bool { return s.Name == name })
	require.GreaterOrEqual(r.t, i, 0, "no status of %s", name)
	return all[i]
}

func marshal(t *testing.T, v any) []byte {
	t.Helper()
	data, err := json.Marshal(v)
	require.NoError(t, err)
	return data
}
