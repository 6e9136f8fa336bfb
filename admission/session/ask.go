package session

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
)

// factTopic is where replicas ask each other, and answer.
const factTopic = "admission"

// fact is a question to another replica, or its answer. It carries neither script nor
// variables: the channel is everybody's who has the store's password.
type fact struct {
	To         string             `json:"to"`
	From       string             `json:"from"`
	Question   uint64             `json:"question,omitempty"` // of the one who asks; 0: a dry_run controller's, nobody waits
	Controller string             `json:"controller,omitempty"`
	Subject    *admission.Subject `json:"subject,omitempty"` // nil: this is an answer
	Outcome    admission.Outcome  `json:"outcome,omitempty"`
	Reason     string             `json:"reason,omitempty"`
}

// Ask has a job that is not of our queue approved, by every controller that it needs in
// their order, wherever they are connected. It waits as long as they may take, and until
// ctx ends. The reason is a sentence for the job's owner.
func (r *Reviewer) Ask(ctx context.Context, s admission.Subject) (ok bool, reason string) {
	p := r.policy.Load()
	began := time.Now()
	if len(p.Observers(&s.Job.Requirement)) > 0 {
		r.post(func(now time.Time) { r.observe(now, s) })
	}
	for _, c := range p.Approvers(&s.Job.Requirement) {
		d := r.askOne(ctx, c, s)
		if d.Outcome == admission.Approved {
			continue
		}
		tell(r.opt.Events.JobReviewed, jobReviewed(s.ID, d, time.Since(began)))
		return false, d.Reason
	}
	if p.Needs(&s.Job.Requirement) {
		tell(r.opt.Events.JobReviewed, jobReviewed(s.ID, admission.Decision{Outcome: admission.Approved}, time.Since(began)))
	}
	return true, ""
}

func jobReviewed(id string, d admission.Decision, took time.Duration) JobReviewed {
	return JobReviewed{Job: spillway.JobID(id), Outcome: d.Outcome, Controller: d.Controller, Reason: d.Reason, Took: took}
}

// askOne asks one controller, here or at another replica, until it answers or its
// deadline has passed. Who is asked first may go away: the question is put again.
func (r *Reviewer) askOne(ctx context.Context, c admission.Controller, s admission.Subject) admission.Decision {
	began := time.Now()
	whole, cancel := context.WithTimeout(ctx, c.Deadline)
	defer cancel()
	question := r.asked.Add(1)
	answer := make(chan admission.Decision, 1)
	r.do(whole, func(time.Time) { r.questions[question] = answer })
	defer r.do(context.WithoutCancel(ctx), func(time.Time) { delete(r.questions, question) })
	again := time.NewTicker(askAgain)
	defer again.Stop()
	shown := false // the reviewer's goroutine has it
	for {
		r.do(whole, func(now time.Time) { r.putQuestion(now, question, c.Name, s, &shown) })
		select {
		case d := <-answer:
			if d.Outcome == admission.Approved || d.Outcome == admission.Rejected || d.Outcome == admission.TimedOut {
				return d
			}
			// Called off there: it is put again.
			r.do(whole, func(time.Time) { shown, r.questions[question] = false, answer })
		case <-again.C:
		case <-whole.Done():
			return admission.Decision{
				Outcome: admission.TimedOut, Controller: c.Name,
				Reason: fmt.Sprintf("admission controller %s is not connected, or did not answer within %s", c.Name, time.Since(began).Round(10*time.Millisecond)),
			}
		case <-r.done:
			return admission.Decision{Outcome: admission.TimedOut, Controller: c.Name, Reason: "this control plane is going away"}
		}
	}
}

// putQuestion asks a controller that is here; or, again and again, the replica that has
// it, to which the question is the same each time.
func (r *Reviewer) putQuestion(now time.Time, question uint64, controller string, s admission.Subject, shown *bool) {
	if *shown {
		return
	}
	if r.engine.Here(controller) {
		*shown = r.engine.Ask(now, question, controller, s)
		return
	}
	if to := r.seen.elsewhere(r.opt.Replica, controller); to != "" {
		r.publish(fact{To: to, From: r.opt.Replica, Question: question, Controller: controller, Subject: &s})
	}
}

// observeAt has a dry_run controller at another replica shown a job.
func (r *Reviewer) observeAt(to, controller string, s admission.Subject) bool {
	return r.publish(fact{To: to, From: r.opt.Replica, Controller: controller, Subject: &s})
}

// publish sends a fact beside the reviewer. What gets lost is asked again.
func (r *Reviewer) publish(f fact) bool {
	if f.Subject != nil {
		bare := *f.Subject
		bare.Job.Script, bare.Job.Env = "", nil
		f.Subject = &bare
	}
	data, err := json.Marshal(f)
	if err != nil {
		return false
	}
	r.calls.Go(func() {
		if err := r.store.PublishFact(r.ctx, factTopic, data); err != nil {
			r.trouble("ask another replica", err)
		}
	})
	return true
}

// listenToOthers takes in what other replicas ask and answer, until Run ends.
func (r *Reviewer) listenToOthers() {
	ctx := r.ctx
	r.calls.Go(func() {
		for ctx.Err() == nil {
			facts, err := r.store.Facts(ctx, factTopic)
			if err != nil {
				r.trouble("listen to other replicas", err)
			}
			for err == nil {
				data, open := <-facts
				if !open {
					break
				}
				r.heard(ctx, data)
			}
			select {
			case <-time.After(retryMost):
			case <-ctx.Done():
			}
		}
	})
}

func (r *Reviewer) heard(ctx context.Context, data []byte) {
	var f fact
	if json.Unmarshal(data, &f) != nil || f.To != r.opt.Replica {
		return
	}
	r.do(ctx, func(now time.Time) {
		switch {
		case f.Subject == nil:
			if c := r.questions[f.Question]; c != nil {
				delete(r.questions, f.Question)
				c <- admission.Decision{Outcome: f.Outcome, Controller: f.Controller, Reason: f.Reason}
			}
		case f.Question == 0:
			if !r.engine.Observe(now, f.Controller, *f.Subject) {
				tell(r.opt.Events.JobUnobserved, JobUnobserved{Controller: f.Controller})
			}
		default:
			r.askFor(now, f)
		}
	})
}

// askFor puts another replica's question to a controller here, once however often it is
// asked, and publishes the answer.
func (r *Reviewer) askFor(now time.Time, f fact) {
	key := f.From + " " + strconv.FormatUint(f.Question, 10)
	if _, under := r.remote[key]; under || !r.engine.Here(f.Controller) {
		return
	}
	question := r.asked.Add(1)
	if !r.engine.Ask(now, question, f.Controller, *f.Subject) {
		return // it is asked again
	}
	r.remote[key] = question
	answer := make(chan admission.Decision, 1)
	r.questions[question] = answer
	r.beside(func(ctx context.Context) func(time.Time) {
		select {
		case d := <-answer:
			if d.Outcome != admission.Cancelled {
				r.publish(fact{To: f.From, From: r.opt.Replica, Question: f.Question, Controller: d.Controller, Outcome: d.Outcome, Reason: d.Reason})
			}
		case <-ctx.Done():
		}
		return func(time.Time) { delete(r.remote, key) }
	})
}
