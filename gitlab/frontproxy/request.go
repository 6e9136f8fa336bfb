package frontproxy

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
)

// jobRequest is a runner that asks GitLab directly for a job.
func (p *Proxy) jobRequest(w http.ResponseWriter, r *http.Request) {
	body, whole, err := peek(w, r)
	switch {
	case err != nil:
		sayAndClose(w, http.StatusBadRequest, "the job request did not arrive")
		return
	case !whole: // GitLab's own front says the same
		sayAndClose(w, http.StatusRequestEntityTooLarge, "the job request is larger than 32 KiB")
		return
	}
	request, err := route.ParseRequest(body)
	if err != nil { // passed on, it might get a job, and nobody would know who has it
		say(w, http.StatusBadRequest, err.Error())
		return
	}
	token := cmp.Or(request.Token, r.Header.Get("Runner-Token"), r.URL.Query().Get("token"))
	who, err := p.opt.Tokens.CallerOf(token, request)
	switch {
	case errors.Is(err, route.ErrUnknownToken):
		p.reverse.ServeHTTP(w, r) // a runner that isn't ours
	case err != nil:
		say(w, http.StatusBadRequest, err.Error())
	default:
		p.ask(w, r, who, body, request.LastUpdate)
	}
}

// ask passes the request of one of our machines on, unless the machine may have no job.
func (p *Proxy) ask(w http.ResponseWriter, r *http.Request, who route.Caller, body []byte, lastUpdate string) {
	if p.withheld(w, r, who, lastUpdate) {
		return
	}
	if p.opt.Take != nil && p.opt.Take(r.Context(), who, body, func(job []byte) error { return sayJob(w, r, job, lastUpdate) }) {
		return
	}
	done := p.opt.Contacts.Waiting(who)
	defer done()
	if !p.turn(w, r, who, body, lastUpdate) {
		return
	}
	noJob := false
	if p.opt.Asking != nil {
		asked := p.opt.Asking(who)
		defer func() { asked(noJob) }()
	}
	out := &watched{ResponseWriter: w}
	d := &delivery{p: p, who: who, lastUpdate: lastUpdate, client: r.Context(), streams: r.ProtoMajor >= 2}
	// Also when ReverseProxy panics, which is how it drops a client in the middle of an
	// answer.
	defer d.settle(out)
	p.reverse.ServeHTTP(out, with(r, &exchange{plain: true, answer: func(resp *http.Response) error {
		noJob = resp.StatusCode == http.StatusNoContent
		return d.answer(resp)
	}}))
}

// withheld answers a machine that may not even ask, and reports whether it did.
func (p *Proxy) withheld(w http.ResponseWriter, r *http.Request, who route.Caller, lastUpdate string) bool {
	why, err := p.barred(r, who)
	if why == "" {
		return false
	}
	if err != nil && why == Unknown {
		p.storeFailed("ordered", err)
	}
	p.withhold(w, who, why, lastUpdate)
	return true
}

func (p *Proxy) withhold(w http.ResponseWriter, who route.Caller, why Why, lastUpdate string) {
	if p.opt.Events.Withheld != nil {
		p.opt.Events.Withheld(who, why)
	}
	sayNoJob(w, lastUpdate)
}

// turn waits for the machine's turn, and reports whether GitLab is to be asked. Otherwise
// it has answered. A machine that has waited may be ordered to drain by now.
func (p *Proxy) turn(w http.ResponseWriter, r *http.Request, who route.Caller, body []byte, lastUpdate string) bool {
	if p.opt.Turn == nil {
		return true
	}
	began := p.opt.Now()
	may, atOnce := p.opt.Turn(r.Context(), who)
	switch {
	case !may:
		p.withhold(w, who, Spillover, lastUpdate)
		return false
	case !atOnce:
		return true
	case p.opt.Now().Sub(began) > waitedFor && p.withheld(w, r, who, lastUpdate):
		return false
	}
	if short, err := route.WithoutLastUpdate(body); err == nil { // it was read before
		setBody(r, short)
	}
	return true
}

// waitedFor is how long a look at a machine's orders is believed [time].
const waitedFor = time.Second

// barred says why a machine may not even ask.
func (p *Proxy) barred(r *http.Request, who route.Caller) (Why, error) {
	if err := p.opt.Contacts.Admit(who, p.opt.Now()); err != nil {
		return Refused, err
	}
	ctx, cancel := detached(r.Context(), storeTimeout)
	defer cancel()
	_, ordered, err := p.opt.Book.Ordered(ctx, who.Pool.Name, who.System)
	switch {
	case err != nil: // a job that it got now could not be booked either
		return Unknown, err
	case ordered:
		return Ordered, nil
	}
	return "", nil
}

func (p *Proxy) storeFailed(what string, err error) {
	if p.opt.Events.StoreFailed != nil {
		p.opt.Events.StoreFailed(what, err)
	}
}

// deleteManager passes on that a machine is taken off GitLab's list, and forgets it when
// GitLab has.
func (p *Proxy) deleteManager(w http.ResponseWriter, r *http.Request) {
	body, whole, err := peek(w, r)
	if err != nil {
		sayAndClose(w, http.StatusBadRequest, "the request did not arrive")
		return
	}
	var token, system string
	if whole {
		gitlab.HeadFields(body, map[string]any{"token": &token, "system_id": &system})
	}
	query := r.URL.Query()
	token, system = cmp.Or(token, query.Get("token")), cmp.Or(system, query.Get("system_id"))
	hash, _, ours := p.opt.Tokens.Lookup(token)
	if !ours || system == "" {
		p.reverse.ServeHTTP(w, r)
		return
	}
	p.reverse.ServeHTTP(w, with(r, &exchange{answer: func(resp *http.Response) error {
		if resp.StatusCode/100 == 2 {
			p.opt.Contacts.Forget(hash, machineID(system))
		}
		return nil
	}}))
}

// openUntil is when a job that begins now is over at the latest, whatever is heard of it.
func openUntil(now time.Time, timeoutSeconds int64) time.Time {
	timeout := unknownTimeout
	if timeoutSeconds > 0 {
		timeout = maxOpen
		if timeoutSeconds < int64(maxOpen/time.Second) {
			timeout = time.Duration(timeoutSeconds) * time.Second
		}
	}
	return now.Add(timeout + afterTimeout)
}

// jobName names a job in an error.
func jobName(id int64) string { return fmt.Sprintf("job %d", id) }
