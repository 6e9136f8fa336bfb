package frontproxy

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/store"
)

// errUnreadable: GitLab answered 201 with something that isn't a job.
var errUnreadable = errors.New("the answer to a job request is no job")

// failureReason is GitLab's word for a job that ends for no fault of its own.
const failureReason = "runner_system_failure"

// maxOpen is the longest timeout of a job, with room for afterTimeout.
const maxOpen = spillway.MaxJobTimeout

// given is a job as GitLab gave it.
type given struct {
	id      int64
	token   string // of the job; secret
	timeout int64  // [s]; 0 = not told
	body    []byte // all of it, or its head
	whole   bool
}

func (g *given) jobID() spillway.JobID { return spillway.JobID(strconv.FormatInt(g.id, 10)) }

// delivery is one job request and what became of it. It is used by one goroutine.
type delivery struct {
	p          *Proxy
	who        route.Caller
	lastUpdate string
	client     context.Context // of the request: it ends when the runner hangs up
	streams    bool            // HTTP/2: its errors don't say that the runner lacks something
	job        *given          // booked and on its way; nil = none
	body       *toEnd          // of the answer that it is in
}

// answer looks at GitLab's answer. With a job in it, it is let through only if the job
// has been booked.
func (d *delivery) answer(resp *http.Response) error {
	if resp.StatusCode != http.StatusCreated {
		return nil
	}
	g, err := readJob(resp)
	if err != nil {
		d.undelivered(g, err)
		return err
	}
	if d.turnedAway() {
		d.giveBack(g, Refused, true)
		insteadNoJob(resp, d.lastUpdate)
		return nil
	}
	if reason, ok := d.admitted(g); !ok {
		d.fail(g, NotAdmit, reason)
		insteadNoJob(resp, d.lastUpdate)
		return nil
	}
	begun, err := d.begin(g)
	switch {
	case err != nil:
		d.p.storeFailed("begin", err)
		d.strike(g) // it may have been booked all the same
		d.giveBack(g, Unknown, false)
	case !begun:
		d.giveBack(g, Ordered, true)
	default:
		return d.carry(resp, g)
	}
	insteadNoJob(resp, d.lastUpdate)
	return nil
}

// turnedAway reports whether the machine must not be given a job any more: GitLab may have
// held its question, and meanwhile its name was found to be another's.
func (d *delivery) turnedAway() bool {
	return d.p.opt.Contacts.Admit(d.who, d.p.opt.Now()) != nil
}

// carry has the answer passed on with the job in it, if there is still somebody to get it.
func (d *delivery) carry(resp *http.Response, g *given) error {
	d.job, d.body = g, &toEnd{Reader: io.MultiReader(bytes.NewReader(g.body), resp.Body)}
	d.p.seats.put(g.jobID(), d.who)
	resp.Body = joined{d.body, resp.Body}
	if err := d.client.Err(); err != nil {
		d.takeBack()
		return err
	}
	return nil
}

// readJob reads the job out of GitLab's answer, of which it takes the head off. With an
// error, the job may still be known.
func readJob(resp *http.Response) (*given, error) {
	head, whole, err := readHead(resp.Body, MaxJobBytes)
	g := &given{body: head, whole: whole}
	var info struct {
		Timeout int64 `json:"timeout"`
	}
	object := gitlab.HeadFields(head, map[string]any{"id": &g.id, "token": &g.token, "runner_info": &info})
	g.timeout = info.Timeout
	switch {
	case err != nil:
		return g, fmt.Errorf("read the answer to a job request: %w", err)
	case !object || g.id <= 0 || (whole && !json.Valid(head)):
		return g, errUnreadable
	}
	return g, nil
}

func (d *delivery) begin(g *given) (bool, error) {
	ctx, cancel := detached(d.client, storeTimeout)
	defer cancel()
	now := d.p.opt.Now()
	j := store.RoutedJob{ID: g.jobID(), Pool: d.who.Pool.Name, Machine: d.who.System, Begun: now, Until: openUntil(now, g.timeout)}
	if d.who.TwoPhase { // else GitLab takes the job as running already, whatever its runner says
		j.ConfirmWithin = route.ConfirmWithin
	}
	return d.p.opt.Book.BeginRouted(ctx, j)
}

// admitted asks whether the job may be given to the runner.
func (d *delivery) admitted(g *given) (reason string, ok bool) {
	switch {
	case d.p.opt.Admit == nil:
		return "", true
	case !g.whole: // what can't be shown can't be admitted
		return fmt.Sprintf("the job is larger than %d bytes, which admission can't look at", MaxJobBytes), false
	}
	payload, err := gitlab.ParsePayload(g.body)
	if err != nil {
		return "the job can't be shown to admission: " + err.Error(), false
	}
	if payload.MoreServices {
		return gitlab.TooManyServices, false
	}
	ctx, cancel := detached(d.client, admitTimeout)
	defer cancel()
	ok, reason = d.p.opt.Admit(ctx, payload, d.who)
	return reason, ok
}

// toEnd is a body that notices whether it was read to its end.
type toEnd struct {
	io.Reader
	reached bool
}

func (t *toEnd) Read(p []byte) (int, error) {
	n, err := t.Reader.Read(p)
	t.reached = t.reached || errors.Is(err, io.EOF)
	return n, err
}

// settle is called when the answer has been written or could not be. A job that did not
// reach its runner is taken back.
func (d *delivery) settle(out *watched) {
	switch {
	case d.job == nil:
	case !d.arrived(out):
		d.takeBack()
	case d.p.opt.Events.Given != nil:
		d.p.opt.Events.Given(d.who, d.job.jobID())
	}
}

// arrived reports whether the runner has the job, or may have it. When it hung up after
// all was handed to the network nobody knows: the job stays in the book then, until it is
// confirmed or can't be any more.
func (d *delivery) arrived(out *watched) bool {
	if d.streams && d.job.whole {
		// A runner that has read the job may end the stream before the server does, which
		// is an error for us, and none for it.
		return out.handed >= int64(len(d.job.body))
	}
	return !out.failed && d.body.reached
}

// takeBack strikes, keeps and offers a job that its runner doesn't have. The book comes
// first: once the job is offered, another machine may have it, and striking it would
// leave that one unbooked.
func (d *delivery) takeBack() {
	g := d.job
	d.job = nil
	d.giveBack(g, HungUp, d.strike(g))
}

// strike takes a job that nobody has out of the book. It is tried once: later, the job
// may be somebody else's.
func (d *delivery) strike(g *given) bool {
	ctx, cancel := detached(d.client, storeTimeout)
	defer cancel()
	d.p.seats.drop(g.jobID())
	_, err := d.p.opt.Book.EndRouted(ctx, g.jobID())
	if err != nil {
		d.p.storeFailed("end", err)
	}
	return err == nil
}

// giveBack keeps a job that was not delivered for another machine. free says that it
// is in nobody's book.
func (d *delivery) giveBack(g *given, why Why, free bool) {
	if !d.who.TwoPhase {
		d.fail(g, why, "the job could not be given to the runner: "+why.String())
		return
	}
	ctx, cancel := detached(d.client, keepTimeout)
	defer cancel()
	err := d.keep(ctx, g)
	d.tell(g, why, err)
	if err == nil && free && g.whole && d.p.opt.Offer != nil {
		d.p.opt.Offer(ctx, g.body, d.who)
	}
}

func (d *delivery) keep(ctx context.Context, g *given) error {
	if g.token == "" {
		return fmt.Errorf("%s: its token could not be read; GitLab queues it again by itself", jobName(g.id))
	}
	return d.p.opt.Keep(ctx, g.id, g.token)
}

// fail ends a job that can't be given back: GitLab believes that it runs, or it was
// refused.
func (d *delivery) fail(g *given, why Why, reason string) {
	if d.p.opt.Fail == nil || g.token == "" {
		d.tell(g, why, fmt.Errorf("%s can't be failed and is left to GitLab", jobName(g.id)))
		return
	}
	ctx, cancel := detached(d.client, keepTimeout)
	defer cancel()
	d.tell(g, why, d.p.opt.Fail(ctx, g.id, g.token, failureReason, reason))
}

// undelivered is a job of which not even all could be read.
func (d *delivery) undelivered(g *given, err error) {
	why := Unreadable
	if d.client.Err() != nil {
		why = HungUp
	}
	if g.id <= 0 {
		d.tell(g, why, err)
		return
	}
	d.giveBack(g, why, false)
}

func (d *delivery) tell(g *given, why Why, err error) {
	if d.p.opt.Events.Undelivered != nil {
		d.p.opt.Events.Undelivered(d.who, g.jobID(), why, err)
	}
}
