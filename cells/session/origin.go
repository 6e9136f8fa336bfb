package session

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"sync"
	"time"

	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Times of an origin.
const (
	// leaseTTL is how long a replica links to a peer without having said so again, and
	// leaseEvery how often it says so.
	leaseTTL   = 15 * time.Second
	leaseEvery = 5 * time.Second
	// turnEvery is how often a replica that does not link asks whether it may: a lease that
	// was released must be taken over before those of the jobs are over.
	turnEvery = time.Second
	// tickEvery is how often it is looked what time has done.
	tickEvery = 200 * time.Millisecond
	// redialFirst and redialMost bound the wait before a link is tried again.
	redialFirst = 200 * time.Millisecond
	redialMost  = 10 * time.Second
	// reattachAfter is the wait before a machine's conversation is begun again.
	reattachAfter = time.Second
)

// OriginStore is what an Origin keeps its books in.
type OriginStore interface {
	Acquire(ctx context.Context, name, holder string, ttl time.Duration) (store.Lease, error)
	ReleaseLease(ctx context.Context, l store.Lease) error
	Settings(ctx context.Context, kind string) (map[string][]byte, error)
	PutSetting(ctx context.Context, kind, name string, data []byte) error
	DropSetting(ctx context.Context, kind, name string) (dropped bool, err error)
	// Renew extends claims, and never shortens one.
	Renew(ctx context.Context, refs []router.JobRef, ttl time.Duration) (stale []router.JobRef, err error)
	GetMany(ctx context.Context, ids []spillway.JobID) ([]*spillway.JobRecord, error)
}

// Conversation is a machine's conversation with the router from within this process.
type Conversation interface {
	Send(m *runnerv1.RunnerMessage) error
	Recv() (*runnerv1.RouterMessage, error)
	Close()
}

// Router is the router of this replica, as far as an Origin uses it.
type Router interface {
	Attach(ctx context.Context, pool spillway.Pool) Conversation
	// Abandon forgets a machine of which another replica may answer for the jobs.
	Abandon(ctx context.Context, id spillway.MachineID)
	// SetPools replaces the pools of other cells.
	SetPools(pools []spillway.Pool) error
	// SetBars replaces the jobs that are kept away from the pools of a peer.
	SetBars(ctx context.Context, peer string, pools []string, bars []router.Bar)
}

// PeerOptions say who a peer is and how it is reached.
type PeerOptions struct {
	cells.Terms
	Address string
	Dial    []grpc.DialOption // transport credentials at least
	// Token returns what proves who we are; nil: a certificate does.
	Token func() (string, error)
}

// OriginOptions are the numbers of an Origin.
type OriginOptions struct {
	Cell, Region string
	Replica      string // names this control plane
	Lease        time.Duration
	Peers        []PeerOptions
	Events       Events
}

// Origin hands jobs over to other cells.
type Origin struct {
	opt    OriginOptions
	store  OriginStore
	router Router
	peers  []*peer

	mu struct {
		sync.Mutex
		pools map[string][]spillway.Pool // by peer
	}
}

// NewOrigin returns an origin. Nothing happens before Run.
func NewOrigin(s OriginStore, r Router, opt OriginOptions) (*Origin, error) {
	errs := []error{(cells.Timing{Lease: opt.Lease}).WithDefaults().Validate()}
	if !cells.ValidName(opt.Cell) || opt.Replica == "" {
		errs = append(errs, errors.New("cells: the cell and its replica need names"))
	}
	o := &Origin{opt: opt, store: s, router: r}
	o.mu.pools = map[string][]spillway.Pool{}
	for _, p := range opt.Peers {
		if !cells.ValidName(p.Peer) || p.Peer == opt.Cell {
			errs = append(errs, fmt.Errorf("cells: %q can't name a peer of %s", p.Peer, opt.Cell))
		}
		o.peers = append(o.peers, newPeer(o, p))
	}
	return o, errors.Join(errs...)
}

// Run links to the peers until ctx ends. What they have of our jobs they keep: another
// replica, or the next life of this one, goes on with it.
func (o *Origin) Run(ctx context.Context) {
	var all sync.WaitGroup
	for _, p := range o.peers {
		all.Go(func() { p.run(ctx) })
	}
	all.Wait()
}

// setPools replaces the pools of one peer.
func (o *Origin) setPools(peer string, pools []spillway.Pool) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if reflect.DeepEqual(o.mu.pools[peer], pools) {
		return
	}
	o.mu.pools[peer] = pools
	var all []spillway.Pool
	for _, name := range slices.Sorted(maps.Keys(o.mu.pools)) {
		all = append(all, o.mu.pools[name]...)
	}
	if err := o.router.SetPools(all); err != nil {
		o.trouble("set the pools of cell "+peer, err)
	}
}

func (o *Origin) trouble(op string, err error) { tell(o.opt.Events.Trouble, Trouble{op, err}) }

// PeerView is a peer for people.
type PeerView struct {
	Name, Region, Address string
	State                 string // linked | cut_off | other_replica
	Detail                string
	Since                 time.Time
	HandedOver            int
	Pools                 []PoolView
}

// PoolView is what a peer offers of one capability.
type PoolView struct {
	Pool       spillway.Pool
	Offer      cells.Offer
	HandedOver int
}

// The states of a link.
const (
	StateLinked       = "linked"
	StateCutOff       = "cut_off"
	StateOtherReplica = "other_replica"
)

// Peers lists the peers, by name.
func (o *Origin) Peers() []PeerView {
	views := make([]PeerView, 0, len(o.peers))
	for _, p := range o.peers {
		views = append(views, p.view())
	}
	slices.SortFunc(views, func(a, b PeerView) int { return cmp.Compare(a.Name, b.Name) })
	return views
}
