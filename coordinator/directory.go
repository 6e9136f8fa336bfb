package coordinator

import (
	"context"
	"encoding/json"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/spillway-ci/spillway"
)

const (
	// poolSetting is the kind of setting that a registered pool is.
	poolSetting = "pool"
	// poolsEvery is how often they are read when nobody tells of a change, and poolsRetry
	// after a read that failed.
	poolsEvery = 30 * time.Second
	poolsRetry = time.Second
	// looksPerSecond bounds how often the store is asked about pools that nobody knows.
	looksPerSecond = 5
)

// PoolTag is the tag that the workers of a registered pool have besides its own: a job
// with it goes to that pool and no other.
func PoolTag(pool string) string { return "pool:" + pool }

// Configured is a pool with its bounds: one of the configuration, or a registered one.
type Configured struct {
	Pool    spillway.Pool
	MinIdle int // workers, or instances
	Max     int // the same; 0 = as many as come
}

// Wanted is how many workers there should be for jobs that run or wait: one for each, and
// MinIdle to spare, at most Max. Whoever starts and ends the workers of a registered pool
// goes by it.
func (c *Configured) Wanted(jobs int) int {
	most := MaxWorkers
	if c.Max > 0 {
		most = c.Max
	}
	return min(jobs+c.MinIdle, most)
}

// registered is a registered pool as it is kept.
type registered struct {
	Tags    []string  `json:"tags,omitempty"`
	MinIdle int       `json:"min_idle,omitempty"`
	Max     int       `json:"max,omitempty"`
	By      string    `json:"by,omitempty"`
	At      time.Time `json:"at"`
}

// pool is what the router knows of it.
func (r *registered) pool(name string) spillway.Pool {
	return spillway.Pool{
		Name:                name,
		Capability:          spillway.Capability{Tags: append(slices.Clone(r.Tags), PoolTag(name))}.Normalize(),
		CapacityPerInstance: 1,
	}
}

// entry is a pool that workers can serve.
type entry struct {
	Configured
	tags       []string
	configured bool
}

// servable reports whether workers may serve the pool: a pool of another origin has jobs
// of a GitLab, which hands them to runners of its own.
func (c *Configured) servable() bool { return c.Pool.Capability.Origin == "" }

func (c *Configured) entry() entry {
	return entry{Configured: *c, tags: c.Pool.Capability.Tags, configured: true}
}

func (r *registered) entry(name string) entry {
	return entry{Configured: Configured{Pool: r.pool(name), MinIdle: r.MinIdle, Max: r.Max}, tags: r.Tags}
}

// directory is the pools that workers can serve: those of the configuration, and the
// registered ones as the store has them.
type directory struct {
	store Store
	opt   *Options
	looks *rate.Limiter

	reading sync.Mutex // one read or change at a time, so that an older one does not win
	mu      struct {
		sync.Mutex
		registered map[string]registered
	}
}

func newDirectory(s Store, opt *Options) *directory {
	return &directory{store: s, opt: opt, looks: rate.NewLimiter(looksPerSecond, looksPerSecond)}
}

// read takes over what the store has. A pool whose name somebody else has here, or that
// a newer version has written, is left out.
func (d *directory) read(ctx context.Context) error {
	d.reading.Lock()
	defer d.reading.Unlock()
	return d.readLocked(ctx)
}

// readOnce is read where that was never done: whoever has just begun knows of no
// registered pool yet.
func (d *directory) readOnce(ctx context.Context) error {
	d.mu.Lock()
	known := d.mu.registered != nil
	d.mu.Unlock()
	if known {
		return nil
	}
	return d.read(ctx)
}

func (d *directory) readLocked(ctx context.Context) error {
	kept, err := d.store.Settings(ctx, poolSetting)
	if err != nil {
		return err
	}
	configured := make(map[string]bool)
	for _, c := range d.opt.Configured() {
		configured[c.Pool.Name] = true
	}
	all := make(map[string]registered, len(kept))
	var pools []spillway.Pool
	for name, data := range kept {
		var r registered
		if json.Unmarshal(data, &r) != nil || configured[name] {
			continue
		}
		p := r.pool(name)
		if p.Validate() != nil {
			continue
		}
		all[name] = r
		pools = append(pools, p)
	}
	slices.SortFunc(pools, func(a, b spillway.Pool) int { return strings.Compare(a.Name, b.Name) })
	for _, name := range d.replace(pools) {
		delete(all, name)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.registered = all
	return nil
}

// replace has the router know the pools, and returns the names of those that it can't
// know, because another part has the name here. That is rare, and looked for one by one.
func (d *directory) replace(pools []spillway.Pool) (left []string) {
	if d.opt.Replace(pools) == nil {
		return nil
	}
	var kept []spillway.Pool
	for i := range pools {
		if d.opt.Replace(append(slices.Clone(kept), pools[i])) != nil {
			left = append(left, pools[i].Name)
			continue
		}
		kept = append(kept, pools[i])
	}
	if d.opt.Replace(kept) != nil {
		tell(d.opt.Events.Trouble, Trouble{Op: "make the registered pools known", Err: spillway.ErrInvalid})
	}
	return left
}

// follow keeps the directory up until ctx ends.
func (d *directory) follow(ctx context.Context) {
	var pokes <-chan struct{}
	for ctx.Err() == nil {
		wait := poolsEvery
		if pokes == nil {
			var err error
			if pokes, err = d.store.SettingPokes(ctx, poolSetting); err != nil && ctx.Err() == nil {
				tell(d.opt.Events.Trouble, Trouble{Op: "listen for registered pools", Err: err})
				wait = poolsRetry
			}
		}
		if err := d.read(ctx); err != nil && ctx.Err() == nil {
			tell(d.opt.Events.Trouble, Trouble{Op: "read the registered pools", Err: err})
			wait = poolsRetry
		}
		select {
		case <-ctx.Done():
		case _, open := <-pokes:
			if !open {
				pokes = nil
			}
		case <-time.After(wait):
		}
	}
}

// entry returns the pool of a name.
func (d *directory) entry(name string) (entry, bool) {
	d.mu.Lock()
	r, ok := d.mu.registered[name]
	d.mu.Unlock()
	if ok {
		return r.entry(name), true
	}
	for _, c := range d.opt.Configured() {
		if c.Pool.Name == name && c.servable() {
			return c.entry(), true
		}
	}
	return entry{}, false
}

// entries are all pools, by name.
func (d *directory) entries() []entry {
	var all []entry
	for _, c := range d.opt.Configured() {
		if c.servable() {
			all = append(all, c.entry())
		}
	}
	d.mu.Lock()
	for name, r := range d.mu.registered {
		all = append(all, r.entry(name))
	}
	d.mu.Unlock()
	slices.SortFunc(all, func(a, b entry) int { return strings.Compare(a.Pool.Name, b.Pool.Name) })
	return all
}

// lookUp finds a pool. One that nobody knows here may just have been registered at
// another replica.
func (d *directory) lookUp(ctx context.Context, name string) (entry, error) {
	for again := true; ; again = false {
		if e, ok := d.entry(name); ok {
			return e, nil
		}
		if !again || !d.looks.Allow() {
			all := d.entries()
			names := make([]string, len(all))
			for i := range all {
				names[i] = all[i].Pool.Name
			}
			return entry{}, poolNotFound(name, names)
		}
		if err := d.read(ctx); err != nil {
			return entry{}, storeStatus(err)
		}
	}
}

func (d *directory) find(ctx context.Context, name string) (spillway.Pool, error) {
	e, err := d.lookUp(ctx, name)
	return e.Pool, err
}

// registeredPools are those that were registered, as the router knows them.
func (d *directory) registeredPools() (pools []spillway.Pool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for name, r := range d.mu.registered {
		pools = append(pools, r.pool(name))
	}
	return pools
}

// Registered returns the registered pools, by name, as this replica knows them.
func (s *Server) Registered() (all []Configured) {
	for _, e := range s.pools.entries() {
		if !e.configured {
			all = append(all, e.Configured)
		}
	}
	return all
}
