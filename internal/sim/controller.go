package sim

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/internal/scenario"
)

// controller is one instance of an admission controller. It thinks about one job at a
// time, in the order in which it was shown them, and answers for each as soon as it has.
type controller struct {
	world    *world
	name     string
	instance string
	n        int
	story    scenario.Controller

	replica  *replica // nil: no stream
	id       admission.InstanceID
	life     int // grows with each stream
	asked    []question
	thinking bool

	gone, silent, lies time.Time // until when
	slow               time.Time
	takes              time.Duration // while it is slow
}

// question is a job that it was shown and has not answered for.
type question struct {
	batch uint64
	job   *spillway.Job
}

// addControllers plans when the controllers of the story connect first.
func (w *world) addControllers() {
	for _, name := range slices.Sorted(maps.Keys(w.story.Controllers)) {
		story := w.story.Controllers[name]
		for n := range story.Instances {
			c := &controller{world: w, name: name, instance: fmt.Sprintf("%s-%d", name, n), n: n, story: story}
			w.controllers = append(w.controllers, c)
			w.agenda.plan(epoch.Add(story.From), c.connect)
		}
	}
}

// connect looks for a replica: its own, or the one that its name falls on, of those that
// work.
func (c *controller) connect() {
	w := c.world
	if c.replica != nil || w.now.Before(c.gone) {
		return
	}
	if r := c.choose(); r != nil && r.reviewer != nil {
		c.life++
		c.asked, c.thinking = nil, false
		c.replica = r
		if r.reviewer.connect(c, c.story.Batch) {
			if w.now.Before(c.lies) {
				c.lie()
			}
			return
		}
		c.alone()
	}
	w.after(retryEvery, c.connect)
}

func (c *controller) choose() *replica {
	var working []*replica
	for _, r := range c.world.replicas {
		if r.working() && (c.story.Replica < 0 || c.story.Replica == r.n) {
			working = append(working, r)
		}
	}
	if len(working) == 0 {
		return nil
	}
	h := fnv.New32a()
	_, _ = h.Write([]byte(c.instance)) // a hash never fails
	return working[int(h.Sum32())%len(working)]
}

// disconnect is the stream breaking.
func (c *controller) disconnect() {
	if c.replica == nil {
		return
	}
	c.alone()
	c.world.after(retryEvery, c.connect)
}

// alone forgets the stream, and what it was asked over it.
func (c *controller) alone() {
	c.replica, c.asked, c.thinking = nil, nil, false
	c.life++
}

// review is a batch of jobs that it is shown.
func (c *controller) review(b admission.Batch) {
	for _, s := range b.Subjects {
		c.asked = append(c.asked, question{batch: b.ID, job: &s.Job})
		c.world.rec.controller(c.name).asked++
		c.world.rec.reviewedOnce(s.Job.ID)
	}
	c.think()
}

// think begins with the next job.
func (c *controller) think() {
	if c.thinking || len(c.asked) == 0 {
		return
	}
	c.thinking = true
	d := c.story.Takes
	if c.world.now.Before(c.slow) {
		d = c.takes
	}
	life := c.life
	c.world.after(d, func() {
		if c.life == life {
			c.speak()
		}
	})
}

// speak answers for the job that it has thought about, once it can.
func (c *controller) speak() {
	w := c.world
	if w.now.Before(c.silent) || !c.replica.working() {
		life := c.life
		w.after(retryEvery, func() {
			if c.life == life {
				c.speak()
			}
		})
		return
	}
	q := c.asked[0]
	c.asked, c.thinking = c.asked[1:], false
	v := admission.Verdict{Subject: string(q.job.ID), Allow: !c.story.Refuses.Refused(q.job)}
	if !v.Allow {
		v.Reason = "it is on the list"
	}
	w.rules.said(c.name, q.job.ID, v.Allow)
	life := c.life
	c.replica.reviewer.answer(c, q.batch, []admission.Verdict{v})
	if c.life == life {
		c.think()
	}
}

// lie answers for jobs that it was not asked about.
func (c *controller) lie() {
	life := c.life
	c.world.after(retryEvery, func() {
		if c.life != life || c.replica == nil || !c.replica.working() || !c.world.now.Before(c.lies) {
			return
		}
		var list []admission.Verdict
		for _, j := range c.world.rec.order {
			if !slices.ContainsFunc(c.asked, func(q question) bool { return q.job.ID == j.id }) {
				list = append(list, admission.Verdict{Subject: string(j.id), Allow: true})
			}
		}
		if len(list) > 0 {
			c.replica.reviewer.answer(c, 1, list)
		}
		if c.life == life {
			c.lie()
		}
	})
}

// control is a fault of instances of a controller.
func (w *world) control(a scenario.Control) {
	until := w.now.Add(a.For)
	w.faults.lasts(until)
	for _, c := range w.controllers {
		if c.name != a.Name || a.Nth >= 0 && a.Nth != c.n {
			continue
		}
		switch a.Fault {
		case scenario.ControllerGone:
			c.gone = until
			if r, id := c.replica, c.id; r != nil {
				c.disconnect()
				r.heard(func() { r.reviewer.disconnected(id) })
			}
			w.agenda.plan(until, c.connect)
		case scenario.ControllerSilent:
			c.silent = until
		case scenario.ControllerSlow:
			c.slow, c.takes = until, a.Takes
		case scenario.ControllerLies:
			c.lies = until
			c.lie()
		}
	}
}

// heard has a replica take something in that came over the network, as soon as it can; a
// replica that is killed never does.
func (r *replica) heard(what func()) {
	life := r.life
	switch {
	case r.dead:
	case r.paused:
		r.world.after(retryEvery, func() {
			if r.life == life {
				r.heard(what)
			}
		})
	default:
		what()
	}
}
