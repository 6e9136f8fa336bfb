package jobrouter

import (
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
)

// Facts is how replicas tell each other what is gone a moment later. Nothing is kept, and
// what gets lost is told again.
type Facts interface {
	PublishFact(ctx context.Context, topic string, data []byte) error
	Facts(ctx context.Context, topic string) (<-chan []byte, error)
}

// Limits and times of what replicas tell each other of machines that wait.
const (
	freeTopic = "gitlab/free"
	// tellEvery is how often it is told that a machine still waits; farFresh is how long
	// that is believed: two may be lost. A replica that is gone holds nobody back for
	// longer.
	tellEvery = time.Second
	farFresh  = 3 * time.Second
	// tellGap is the least time between two messages. In it, a job may go to the wrong
	// pool.
	tellGap = 20 * time.Millisecond
	// maxPoolsTold bounds the pools of one message [pools]: less than the 8 KiB of a fact.
	maxPoolsTold = 64
	// maxReplicasHeard bounds the replicas that are listened to [replicas].
	maxReplicasHeard = 64
	// maxFreeFor bounds for how long a machine is believed to wait.
	maxFreeFor = 24 * time.Hour
	// hearRetry is how soon it is tried again to listen.
	hearRetry = 5 * time.Second
)

// told is what a replica says of the pools whose machines wait there.
type told struct {
	Replica string     `json:"replica"`
	Pools   []toldPool `json:"pools"`
}

// toldPool says for how long, without a break, a machine of a pool has waited.
type toldPool struct {
	Pool string `json:"pool"`
	For  int64  `json:"for_ms"` // [ms]; negative: none does any more
}

// crowdChanged is called when the first machine of a pool begins to wait, and when the
// last one stops. It only wakes: its caller holds a lock.
func (d *Desk) crowdChanged() { poke(d.news) }

// spread tells lines and other replicas which pools have a machine that waits.
func (d *Desk) spread(ctx context.Context) {
	tick := time.NewTicker(tellEvery)
	defer tick.Stop()
	free := map[string]bool{} // that the others were told of
	failing := false
	for {
		select {
		case <-ctx.Done():
			_ = d.tell(context.WithoutCancel(ctx), free) // they stop to believe the last word by themselves
			return
		case <-tick.C:
		case <-d.news:
			d.wakeRivals()
		}
		err := d.tell(ctx, free)
		if err != nil && !failing && ctx.Err() == nil {
			d.events.trouble("telling other replicas which pools have a free machine", err)
		}
		failing = err != nil
		pause := time.NewTimer(tellGap)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// wakeRivals has everybody see anew whether it is his turn.
func (d *Desk) wakeRivals() {
	d.rivals.wake()
	for _, r := range d.opt.Tokens.Contested() {
		d.mu.Lock()
		l := d.mu.lines[r.Token]
		d.mu.Unlock()
		if l != nil {
			poke(l.pokePoll)
		}
	}
}

// tell tells the other replicas what is so here, and what isn't any more of what they
// were told.
func (d *Desk) tell(ctx context.Context, free map[string]bool) error {
	if d.opt.Facts == nil {
		return nil
	}
	for pools := range slices.Chunk(d.toTell(free, d.opt.Now()), maxPoolsTold) {
		data, err := json.Marshal(told{Replica: d.opt.Replica, Pools: pools})
		if err != nil {
			return err
		}
		call, cancel := context.WithTimeout(ctx, callTimeout)
		err = d.opt.Facts.PublishFact(call, freeTopic, data)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// toTell lists the pools whose machines wait here, and those of which that was told and
// is no longer so; free becomes the former.
func (d *Desk) toTell(free map[string]bool, now time.Time) (list []toldPool) {
	for _, r := range d.opt.Tokens.Contested() {
		since, waits := d.waitsHere(r, now)
		if at, asks := d.rivals.asksHere(r.Pool.Name, now); asks && (!waits || at.Before(since)) {
			since, waits = at, true
		}
		switch {
		case waits && !d.leaving():
			list = append(list, toldPool{r.Pool.Name, now.Sub(since).Milliseconds()})
			free[r.Pool.Name] = true
		case free[r.Pool.Name]:
			list = append(list, toldPool{r.Pool.Name, -1})
			delete(free, r.Pool.Name)
		}
	}
	return list
}

func (d *Desk) leaving() bool { return d.draining.Load() || d.ended.Load() }

// hear takes in what other replicas tell.
func (d *Desk) hear(ctx context.Context) {
	for ctx.Err() == nil {
		facts, err := d.opt.Facts.Facts(ctx, freeTopic)
		if err != nil && ctx.Err() == nil {
			d.events.trouble("listening which pools of other replicas have a free machine", err)
		}
		if err == nil {
			for data := range facts {
				if d.rivals.learn(data, d.opt.Replica, d.opt.Now()) {
					d.wakeRivals()
				}
			}
		}
		pause := time.NewTimer(hearRetry)
		select {
		case <-ctx.Done():
		case <-pause.C:
		}
		pause.Stop()
	}
}

// learn reads what a replica tells as if anybody could have written it, and reports
// whether it changes who waits.
func (r *rivalry) learn(data []byte, ours string, now time.Time) (news bool) {
	var t told
	if json.Unmarshal(data, &t) != nil || t.Replica == "" || t.Replica == ours || len(t.Pools) > maxPoolsTold {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	pools := r.mu.others[t.Replica]
	if pools == nil {
		r.forgetLocked(now)
		if len(r.mu.others) >= maxReplicasHeard {
			return false
		}
		pools = map[string]far{}
		r.mu.others[t.Replica] = pools
	}
	for _, p := range t.Pools {
		was, known := pools[p.Pool]
		known = known && now.Before(was.until)
		switch d := time.Duration(min(p.For, maxFreeFor.Milliseconds())) * time.Millisecond; {
		case p.For < 0:
			news = news || known
			delete(pools, p.Pool)
		case known || len(pools) < spillway.MaxPools && spillway.PoolName(p.Pool):
			news = news || !known
			pools[p.Pool] = far{since: now.Add(-d), until: now.Add(farFresh)}
		}
	}
	return news
}

// forgetLocked drops what is no longer believed.
func (r *rivalry) forgetLocked(now time.Time) {
	for replica, pools := range r.mu.others {
		for pool, f := range pools {
			if !now.Before(f.until) {
				delete(pools, pool)
			}
		}
		if len(pools) == 0 {
			delete(r.mu.others, replica)
		}
	}
}
