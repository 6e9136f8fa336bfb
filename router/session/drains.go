package session

import (
	"context"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	"github.com/spillway-ci/spillway/router"
)

// drainsEvery is how often the orders are read when nobody pokes: a poke may be
// lost.
const drainsEvery = 2 * time.Second

// drains is the orders to drain that our machines are under. The scaler puts an
// order on record in the store; here it is carried to the machine, and the
// acknowledgement goes back in the machine's record.
type drains struct {
	orders map[spillway.MachineID]drain
	// standing is all orders of the pools that our machines belong to, as last read: a
	// machine that comes is under its order before it is offered anything.
	standing map[string]map[spillway.MachineID]router.DrainOrder

	lastID  uint64
	read    time.Time
	reading bool
	due     bool // somebody said that there are new ones
}

// drain is an order as it was last sent.
type drain struct {
	router.DrainOrder

	id uint64
}

func (d *drains) init() {
	d.orders = make(map[spillway.MachineID]drain)
	d.standing = make(map[string]map[spillway.MachineID]router.DrainOrder)
}

// followDrains reads the orders in force for the pools of our machines.
func (d *Dispatcher) followDrains(now time.Time) {
	if d.drains.reading || !d.drains.due && now.Sub(d.drains.read) < drainsEvery {
		return
	}
	d.drains.reading, d.drains.due, d.drains.read = true, false, now
	pools := make(map[string]bool)
	for _, s := range d.streams {
		pools[s.pool.Name] = true
	}
	d.beside(func(ctx context.Context) func(time.Time) {
		// Of a pool that can't be read, what was ordered stays ordered.
		standing, err := d.store.DrainsOf(ctx, slices.Collect(maps.Keys(pools)))
		return func(now time.Time) {
			d.drains.reading, d.drains.standing = false, standing
			if err != nil {
				d.trouble("read drain orders", err)
			}
			d.obey(now, standing)
		}
	})
}

// obey carries new orders out, and takes back those that are no longer in force,
// for the machines of the pools that were read.
func (d *Dispatcher) obey(now time.Time, standing map[string]map[spillway.MachineID]router.DrainOrder) {
	orders := make(map[spillway.MachineID]router.DrainOrder)
	for _, of := range standing {
		maps.Copy(orders, of)
	}
	for id, order := range orders {
		if d.drains.orders[id].DrainOrder != order {
			d.order(now, order)
		}
	}
	for id := range d.drains.orders {
		m, known := d.engine.Machine(id)
		_, read := standing[m.Pool]
		if _, inForce := orders[id]; !inForce && (!known || read) {
			d.order(now, router.DrainOrder{Machine: id})
		}
	}
}

// order puts a machine under an order, or takes it back. It stops getting jobs
// before it knows of it.
func (d *Dispatcher) order(now time.Time, order router.DrainOrder) {
	id := order.Machine
	if !d.engine.Order(now, id, order.On) {
		delete(d.drains.orders, id)
		return // not one of ours
	}
	d.drains.lastID++
	next := drain{DrainOrder: order, id: d.drains.lastID}
	d.drains.orders[id] = next
	if !order.On {
		delete(d.drains.orders, id)
	}
	d.records.urgent(id)
	if s := d.streams[id]; s != nil && s.registered {
		s.drainID = next.id
		s.send(next.message())
	}
}

// underOrder puts a machine that has come under the order that stands for it.
func (d *Dispatcher) underOrder(now time.Time, s *stream) {
	if order, ok := d.drains.standing[s.pool.Name][s.machine]; ok && order.On && d.drains.orders[s.machine].DrainOrder != order {
		d.order(now, order)
	}
}

// resumeDrain repeats the order that a machine is under on its new stream: a machine
// forgets an order with the stream that it came over.
func (d *Dispatcher) resumeDrain(s *stream) {
	order, ok := d.drains.orders[s.machine]
	if !ok {
		return
	}
	s.drainID = order.id
	s.send(order.message())
}

// drainAcked takes the answer to the newest order; one to an older order says
// nothing about this one.
func (d *Dispatcher) drainAcked(now time.Time, s *stream, m *runnerv1.DrainAck) {
	if m.GetDrainId() != s.drainID {
		return
	}
	d.engine.DrainAck(now, s.machine, m.GetDraining())
	d.records.urgent(s.machine)
}

func (o *drain) message() *runnerv1.RouterMessage {
	return &runnerv1.RouterMessage{Message: &runnerv1.RouterMessage_Drain{Drain: &runnerv1.Drain{
		DrainId: o.id, Draining: o.On, Terminate: o.Terminate, Reason: o.Reason,
	}}}
}
