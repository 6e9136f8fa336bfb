package session

import (
	"context"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	runnerv1 "github.com/spillway-ci/spillway/proto/spillway/runner/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

const (
	// beatEvery is how often a machine says that it is there: well within the silence that
	// a router forgives.
	beatEvery = 5 * time.Second
	// beatGap is the least time between two heartbeats.
	beatGap = 300 * time.Millisecond
	// machineVersion is what the router and its pages are told of such a machine.
	machineVersion = "cell"
)

// machine is what a peer offers of one capability, to the router: a machine. It belongs to
// the peer's owner, and may be nil: then nobody needs what it says.
type machine struct {
	peer *peer
	pool spillway.Pool
	id   spillway.MachineID

	conversation Conversation // nil: none now
	ready        bool         // the router knows it
	againAt      time.Time
	beatAt       time.Time
	busy         int  // as last said
	changed      bool // something is to be said soon
}

// syncPools has the router know what the peer offers, and what it has of our jobs.
func (p *peer) syncPools() {
	for _, pool := range p.book.Pools() {
		p.inherited[pool.Name] = pool
	}
	list := make([]spillway.Pool, 0, len(p.inherited))
	for _, name := range sortedNames(p.inherited) {
		list = append(list, p.inherited[name])
	}
	p.origin.setPools(p.opt.Peer, list)
	for _, pool := range list {
		m := p.machines[pool.Name]
		if m == nil {
			m = &machine{peer: p, id: spillway.MachineID("cell:" + pool.Name)}
			p.machines[pool.Name] = m
		}
		m.pool, m.changed = pool, true
	}
}

// dropIdlePools lets go of what is offered no more, once nothing of it is under way.
func (p *peer) dropIdlePools() {
	if !p.book.Linked() {
		return
	}
	dropped := false
	for name, m := range p.machines {
		if _, offered := p.book.Offered(name); !offered && p.book.Jobs(name) == 0 {
			p.origin.router.Abandon(p.ctx, m.id)
			m.end()
			delete(p.machines, name)
			delete(p.inherited, name)
			dropped = true
		}
	}
	if dropped {
		p.syncPools()
	}
}

// keep begins the conversation when there is none, and has the machine say how it is.
func (m *machine) keep(now time.Time) {
	if m.conversation == nil {
		if !now.Before(m.againAt) {
			m.attach()
		}
		return
	}
	if !m.ready {
		return
	}
	busy := m.pool.CapacityPerInstance - m.peer.book.Free(now, m.pool.Name)
	due := m.changed || busy != m.busy
	if now.Sub(m.beatAt) >= beatEvery || due && now.Sub(m.beatAt) >= beatGap {
		m.beat(now, busy)
	}
}

// attach begins a conversation, and says what the machine has.
func (m *machine) attach() {
	p := m.peer
	c := p.origin.router.Attach(p.ctx, m.pool)
	m.conversation, m.ready = c, false
	carried, _ := p.book.Carried(m.pool.Name)
	register := &runnerv1.Register{
		MachineId: string(m.id), InstanceId: "cell:" + p.opt.Peer, Capacity: int32(m.pool.CapacityPerInstance), Version: machineVersion,
		Running: running(carried), Unhealthy: m.unhealthy(),
	}
	turn := p.ctx
	p.calls.Go(func() { m.listen(turn, c) })
	m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Register{Register: register}})
}

func running(refs []cells.Ref) []*runnerv1.RunningJob {
	list := make([]*runnerv1.RunningJob, len(refs))
	for i, ref := range refs {
		list[i] = &runnerv1.RunningJob{JobId: string(ref.ID), Attempt: int32(ref.Attempt)}
	}
	return list
}

// listen hands on what the router says until the conversation ends.
func (m *machine) listen(ctx context.Context, c Conversation) {
	for {
		said, err := c.Recv()
		if err != nil {
			m.peer.do(ctx, func() {
				if m.conversation == c {
					m.conversation, m.ready, m.againAt = nil, false, time.Now().Add(reattachAfter)
				}
			})
			return
		}
		m.peer.do(ctx, func() { m.told(c, said) })
	}
}

// told takes in what the router says. What an older conversation brought is of one that
// the router has ended: the new one says what the machine has, and this is not among it.
func (m *machine) told(c Conversation, said *runnerv1.RouterMessage) {
	if m.conversation != c {
		return
	}
	p := m.peer
	switch said := said.GetMessage().(type) {
	case *runnerv1.RouterMessage_Registered:
		m.registered(said.Registered)
	case *runnerv1.RouterMessage_Assign:
		m.assigned(said.Assign)
	case *runnerv1.RouterMessage_CancelJob:
		p.steps(p.book.Unwanted(refOf(said.CancelJob.GetJobId(), said.CancelJob.GetAttempt())))
	case *runnerv1.RouterMessage_StatusAck:
		p.steps(p.book.Stored(refOf(said.StatusAck.GetJobId(), said.StatusAck.GetAttempt())))
	case *runnerv1.RouterMessage_Drain:
		m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_DrainAck{DrainAck: &runnerv1.DrainAck{
			DrainId: said.Drain.GetDrainId(), Draining: said.Drain.GetDraining(),
		}}})
	default: // why it has to wait, and signals
	}
}

func (m *machine) registered(r *runnerv1.Registered) {
	p := m.peer
	m.ready, m.changed = true, true
	for _, job := range r.GetSuperseded() {
		p.steps(p.book.Unwanted(refOf(job.GetJobId(), job.GetAttempt())))
	}
	_, ended := p.book.Carried(m.pool.Name)
	for _, ref := range ended {
		m.finish(ref, p.results[ref])
	}
}

// assigned takes a job that the router has given to the peer.
func (m *machine) assigned(a *runnerv1.Assign) {
	p, job := m.peer, a.GetJob()
	ref := refOf(job.GetId(), a.GetAttempt())
	r := requirementOf(job.GetRequirement())
	r.Origin = job.GetRequirement().GetOrigin()
	if why, denied := p.book.Denies(time.Now(), ref.ID); denied { // it was claimed just before that
		m.deny(ref, why)
		return
	}
	if r.Origin != "" || !p.book.Take(time.Now(), ref, r.Class(), m.pool.Name) {
		m.refuse(ref, "the cell offers no place any more")
		m.changed = true
		return
	}
	p.jobs[ref] = job
	p.keepThenSend(ref, r.Class(), m.pool)
}

// beat says how the machine is. What the peer has no place for counts as busy.
func (m *machine) beat(now time.Time, busy int) {
	carried, ended := m.peer.book.Carried(m.pool.Name)
	has := make(map[cells.Ref]bool, len(ended))
	for _, ref := range ended {
		has[ref] = true
	}
	var list []cells.Ref
	for _, ref := range carried {
		if !has[ref] {
			list = append(list, ref)
		}
	}
	m.beatAt, m.busy, m.changed = now, busy, false
	m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_Heartbeat{Heartbeat: &runnerv1.Heartbeat{
		Busy: int32(busy), Running: running(list), Unhealthy: m.unhealthy(),
	}}})
}

func (m *machine) unhealthy() string {
	if m.peer.book.Linked() {
		return ""
	}
	return "there is no link to cell " + m.peer.opt.Peer
}

func (m *machine) accept(ref cells.Ref) {
	m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobAccepted{JobAccepted: &runnerv1.JobAccepted{
		JobId: string(ref.ID), Attempt: int32(ref.Attempt),
	}}})
}

func (m *machine) finish(ref cells.Ref, result *typesv1.JobResult) {
	m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobStatus{JobStatus: &runnerv1.JobStatus{
		JobId: string(ref.ID), Attempt: int32(ref.Attempt), Result: result,
	}}})
}

func (m *machine) refuse(ref cells.Ref, detail string) {
	m.giveBack(ref, runnerv1.RefusalCode_REFUSAL_CODE_RESOURCE_EXHAUSTED, detail)
}

func (m *machine) deny(ref cells.Ref, detail string) {
	m.giveBack(ref, runnerv1.RefusalCode_REFUSAL_CODE_INVALID, detail)
}

func (m *machine) lose(ref cells.Ref, detail string) {
	m.giveBack(ref, runnerv1.RefusalCode_REFUSAL_CODE_LOST, detail)
}

func (m *machine) giveBack(ref cells.Ref, code runnerv1.RefusalCode, detail string) {
	m.send(&runnerv1.RunnerMessage{Message: &runnerv1.RunnerMessage_JobRefused{JobRefused: &runnerv1.JobRefused{
		JobId: string(ref.ID), Attempt: int32(ref.Attempt), Code: code, Detail: detail,
	}}})
	if m != nil {
		m.changed = true
	}
}

// send says something to the router. What is lost with the conversation, the next one
// makes good: what is not named there, the router gives to others in time.
func (m *machine) send(said *runnerv1.RunnerMessage) {
	if m != nil && m.conversation != nil {
		_ = m.conversation.Send(said)
	}
}

// end ends the conversation. That takes as long as the router does: the turn is over when
// it has.
func (m *machine) end() {
	if c := m.conversation; c != nil {
		m.peer.calls.Go(c.Close)
		m.conversation = nil
	}
}
