package sim

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/internal/sim/memstore"
)

// disconnected is a stream that broke. The machine has a while to come back.
func (s *session) disconnected(id spillway.MachineID) {
	delete(s.streams, id)
	if s.replica.dead || !s.engine.Disconnect(s.world.now, id) {
		return
	}
	s.touched(id)
	s.forgetAfter(streamGrace, id)
}

// forgetAfter gives a machine up, unless it comes back. While the store can't tell
// whether another replica has it, it isn't known to be lost.
func (s *session) forgetAfter(d time.Duration, id spillway.MachineID) {
	life := s.replica.life
	s.world.after(d, func() {
		if s.replica.life != life || s.replica.paused || s.streams[id] != nil {
			return
		}
		if _, err := s.world.store.Machines(s.world.ctx); err != nil {
			s.forgetAfter(retryEvery, id)
			return
		}
		s.forget(id)
	})
}

// machines are the store's. Those that are forgotten with their instances are given
// up by every router at once, unless their streams go on.
type machines struct {
	*memstore.Store
	world *world
}

// RemoveMachines implements scaler.Machines.
func (m machines) RemoveMachines(ctx context.Context, pool string, ids []spillway.MachineID) error {
	err := m.Store.RemoveMachines(ctx, pool, ids)
	m.world.after(0, func() { // the news travels: nobody hears it in the middle of its own turn
		for _, r := range m.world.replicas {
			for _, id := range ids {
				if _, known := r.engine.Machine(id); known && r.working() && r.streams[id] == nil {
					r.forget(id)
				}
			}
		}
	})
	return err
}

// forget gives up a machine that has not come back, with its jobs, unless another
// replica has it by now.
func (s *session) forget(id spillway.MachineID) {
	w := s.world
	movedOn := s.movedOn(id)
	lost := s.engine.Forget(w.now, id)
	delete(s.unsaved, id)
	if movedOn {
		return
	}
	s.release(lost, true, "its machine was lost")
	s.write(func() error { return w.store.DropMachine(id) })
	s.settle()
}

// dropStreams is the end of the process, seen by the machines.
func (s *session) dropStreams() {
	for _, id := range slices.Sorted(maps.Keys(s.streams)) {
		r := s.streams[id]
		delete(s.streams, id)
		r.disconnect()
	}
}
