package controlplane

import (
	"context"
	"crypto/tls"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	cellsession "github.com/spillway-ci/spillway/cells/session"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

const (
	// stockEvery is how often it is counted what this cell can offer.
	stockEvery = time.Second
	// stockFresh is how old that may be: what is older is not offered.
	stockFresh = 10 * time.Second
	// cellPing finds a dead connection to another cell.
	cellPing = 30 * time.Second
)

// cellLinks is this cell's part with others; nil: this control plane is alone.
type cellLinks struct {
	origin   *cellsession.Origin
	receiver *cellsession.Receiver
	stock    atomic.Pointer[stocktaking]
}

// stocktaking is what the cell offers, as it was counted at a time.
type stocktaking struct {
	offers []cells.Offer
	at     time.Time
}

// makeCells makes what links to other cells, if the configuration names this one.
func (c *ControlPlane) makeCells(context.Context) error {
	cfg := c.cfg.Cells
	if cfg == nil {
		return nil
	}
	k := &cellLinks{}
	opt := cellsession.OriginOptions{
		Cell: cfg.Name, Region: cfg.Region, Replica: c.cfg.ReplicaName(), Lease: cfg.Lease, Events: c.cellEvents(),
	}
	for i := range cfg.Peers {
		peer, err := c.cellPeer(cfg, &cfg.Peers[i])
		if err != nil {
			return err
		}
		opt.Peers = append(opt.Peers, peer)
		c.metrics.AddCell(peer.Peer)
	}
	var err error
	if k.origin, err = cellsession.NewOrigin(c.store, cellRouter{c, session.NewRunners(c.dispatcher, nil)}, opt); err != nil {
		return err
	}
	k.receiver, err = cellsession.NewReceiver(c.store, k.origin, cellsession.ReceiverOptions{
		Cell: cfg.Name, Region: cfg.Region, Replica: c.cfg.ReplicaName(), EndWithin: cfg.EndWithin,
		Offers: k.offers, EndJobs: c.dispatcher.EndJobs, Events: c.cellEvents(),
	})
	c.cells = k
	return err
}

// cellPeer says how a peer is reached.
func (c *ControlPlane) cellPeer(cfg *config.Cells, p *config.CellPeer) (cellsession.PeerOptions, error) {
	creds := insecure.NewCredentials()
	if p.TLS != nil {
		files, err := c.certificates.Open("cells.peers."+p.Name+".tls", p.TLS.TLS)
		if err != nil {
			return cellsession.PeerOptions{}, err
		}
		creds = peerCredentials(files.Client, p.TLS.ServerName)
	}
	opt := cellsession.PeerOptions{Terms: cfg.Terms(p), Address: p.Address, Dial: []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: cellPing, Timeout: cellPing / 2}),
	}}
	if src := p.Token; !src.IsZero() {
		opt.Token = func() (string, error) {
			secret, err := src.Read()
			if err != nil {
				return "", fmt.Errorf("cells.peers %s: token: %w", p.Name, err)
			}
			return secret.Reveal(), nil
		}
	}
	return opt, nil
}

func peerCredentials(client func(string) *tls.Config, serverName string) credentials.TransportCredentials {
	return tlsfiles.Credentials(client, serverName)
}

// cellService is the service for other cells; alone, there is none.
func (c *ControlPlane) cellService() cellsv1.CellServiceServer {
	if c.cells == nil {
		return cellsv1.UnimplementedCellServiceServer{}
	}
	return c.cells.receiver
}

// cellTiming is what handed-over jobs go by.
func (c *ControlPlane) cellTiming() cells.Timing {
	if c.cfg.Cells == nil {
		return cells.Timing{}.WithDefaults()
	}
	return c.cfg.Cells.Timing().WithDefaults()
}

// runCells links to other cells until ctx ends.
func (c *ControlPlane) runCells(ctx context.Context, all *sync.WaitGroup) {
	k := c.cells
	if k == nil {
		return
	}
	all.Go(func() { k.origin.Run(ctx) })
	all.Go(func() { k.receiver.Run(ctx) })
	all.Go(func() {
		tick := time.NewTicker(stockEvery)
		defer tick.Stop()
		for ctx.Err() == nil {
			select {
			case <-ctx.Done():
			case <-tick.C:
				if k.receiver.Linked() {
					c.takeStock(ctx)
				}
			}
		}
	})
}

// offers is what was counted last, nothing when that is long ago.
func (k *cellLinks) offers() []cells.Offer {
	s := k.stock.Load()
	if s == nil {
		return nil
	}
	list := s.offers
	if time.Since(s.at) > stockFresh {
		list = append([]cells.Offer(nil), list...)
		for i := range list {
			list[i].Free, list[i].Growth = 0, 0
		}
	}
	return list
}

// takeStock counts what this cell can offer: what its own jobs leave.
func (c *ControlPlane) takeStock(ctx context.Context) {
	machines, err := c.store.Machines(ctx)
	if err != nil {
		return // it gets old
	}
	waiting, err := c.store.Counts(ctx)
	if err != nil {
		return
	}
	now := time.Now()
	free := map[string]int{}
	for i := range machines {
		if m := &machines[i]; m.Connected && now.Sub(m.HeardAt) <= c.cfg.Timeouts.Silent && m.TakesJobs() {
			free[m.Pool] += max(0, m.Capacity-m.InUse())
		}
	}
	var stock []cells.Stock
	for _, p := range c.poolSet.given() {
		s := cells.Stock{Capability: p.Capability, CostPerJob: p.CostPerJob, Free: free[p.Name], Room: c.roomToOffer(now, p.Name)}
		if s.CostPerJob == 0 {
			s.CostPerJob = c.cfg.Cells.Cost
		}
		for k := range waiting {
			if n := waiting[k].Pending + waiting[k].Unadmitted; n > 0 && router.Match(&p.Capability, &waiting[k].Requirement).OK() {
				s.Waiting += n
			}
		}
		stock = append(stock, s)
	}
	c.cells.stock.Store(&stocktaking{offers: cells.Offers(stock), at: now})
}

// roomToOffer is how much a pool can grow for others.
func (c *ControlPlane) roomToOffer(now time.Time, pool string) int {
	if !c.cfg.Cells.OfferGrowth || c.loop == nil {
		return 0
	}
	pic := c.loop.Picture()
	if pic == nil {
		return 0
	}
	room, known := pic.Rooms()[pool]
	if !known || room.Down || now.Before(room.CooledUntil) || now.Sub(room.At) > router.RoomFresh {
		return 0
	}
	return room.Jobs
}

// cellRouter is the router as other cells' machines use it.
type cellRouter struct {
	c       *ControlPlane
	runners *session.Runners
}

// Attach implements cellsession.Router.
func (r cellRouter) Attach(ctx context.Context, pool spillway.Pool) cellsession.Conversation {
	return r.runners.Attach(ctx, pool)
}

// Abandon implements cellsession.Router.
func (r cellRouter) Abandon(ctx context.Context, id spillway.MachineID) {
	r.c.dispatcher.Abandon(ctx, id)
}

// SetPools implements cellsession.Router.
func (r cellRouter) SetPools(pools []spillway.Pool) error {
	return r.c.poolSet.replace(cellsPart, pools)
}

// SetBars implements cellsession.Router.
func (r cellRouter) SetBars(ctx context.Context, peer string, pools []string, bars []router.Bar) {
	r.c.dispatcher.SetBars(ctx, peer, pools, bars)
}

// cellEvents has log and metrics told. An info line is written only when something has
// changed.
func (c *ControlPlane) cellEvents() cellsession.Events {
	return cellsession.Events{
		PeerLinked: func(e cellsession.PeerLinked) {
			c.metrics.CellLinked(e.Peer, e.Linked)
			if e.Linked {
				c.log.Info(e.String())
			} else {
				c.log.Warn(e.String())
			}
		},
		PeerOffered: func(e cellsession.PeerOffered) { c.metrics.CellOffered(e.Peer, e.Free, e.Growth, e.Jobs) },
		HandedOver: func(e cellsession.HandedOver) {
			c.metrics.JobHandedOver(e.Peer)
			c.log.Info(e.String())
		},
		CameBack: func(e cellsession.CameBack) {
			c.metrics.JobCameBack(e.Peer, e.Outcome())
			if e.Word == cells.WordEnded {
				c.log.Info(e.String())
			} else {
				c.log.Warn(e.String())
			}
		},
		OriginLinked: func(e cellsession.OriginLinked) {
			c.metrics.CellOrigins(e.Origins)
			c.log.Info(e.String())
		},
		JobTaken: func(e cellsession.JobTaken) {
			c.metrics.CellJobTaken(e.Why == "")
			if e.Why != "" {
				c.log.Warn("job of another cell not taken", "origin", e.Origin, "job", e.Ref.String(), "reason", e.Why)
			}
		},
		JobEnded: func(e cellsession.JobEnded) {
			if e.Word == 0 {
				c.log.Warn(e.String())
				return
			}
			c.metrics.CellJobEnded(cellsession.Outcome(e.Word))
			c.log.Info(e.String())
		},
		Trouble: func(e cellsession.Trouble) {
			c.metrics.StoreFailed(e.Err)
			c.log.Warn("cells: " + e.String())
		},
	}
}
