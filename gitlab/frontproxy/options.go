package frontproxy

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

// Limits and times.
const (
	// MaxHeaderBytes bounds the address and the headers of a request, and the headers of
	// an answer [bytes]: more is answered 431 or 502. The server in front should have the same limit.
	MaxHeaderBytes = 64 << 10
	// MaxJobBytes bounds what is read of a job before it is passed on [bytes]. The rest
	// of a larger one is streamed.
	MaxJobBytes = gitlab.MaxPayloadBytes
	// maxPeekBytes bounds what is looked at of a request's body [bytes]. More is refused
	// of a job request, as by GitLab, and passes unseen otherwise.
	maxPeekBytes = route.MaxRequestBytes
	// maxVerifyBytes bounds the answers that a fingerprint is put into [bytes].
	maxVerifyBytes = 64 << 10
	// storeTimeout bounds one question to the book. Longer would hold a runner that can
	// ask again in a few seconds.
	storeTimeout = 5 * time.Second
	// admitTimeout bounds one question to admission; its controllers have limits of
	// their own.
	admitTimeout = 30 * time.Second
	// keepTimeout bounds one call to GitLab on behalf of a job.
	keepTimeout = 10 * time.Second
	// peekTimeout is how long a client may take to send a body that is looked at.
	peekTimeout = 30 * time.Second
	// closeTimeout is how long the rest of a refused body is taken in, so that the client
	// reads the answer before it sees its connection end.
	closeTimeout = 5 * time.Second
	// afterTimeout is how long a job may be open beyond its own timeout: artifacts are
	// uploaded after it, and the end is told again and again while GitLab is down.
	afterTimeout = time.Hour
	// unknownTimeout is a job's timeout where GitLab doesn't tell it.
	unknownTimeout = 24 * time.Hour
	// dialTimeout bounds how long GitLab is tried to be reached.
	dialTimeout = 10 * time.Second
	// idleConnsPerHost bounds the connections to GitLab that wait for use.
	idleConnsPerHost = 256
)

// Book is the part of the store that knows which machine has which job.
type Book interface {
	BeginRouted(ctx context.Context, j store.RoutedJob) (begun bool, err error)
	ConfirmRouted(ctx context.Context, id spillway.JobID) (store.Confirmation, error)
	EndRouted(ctx context.Context, id spillway.JobID) (ended bool, err error)
	Ordered(ctx context.Context, pool string, id spillway.MachineID) (router.DrainOrder, bool, error)
	Routed(ctx context.Context, pool string, whole bool) (store.RoutedBook, error)
}

// Contacts is told who was heard; see route.Contacts.
type Contacts interface {
	Admit(who route.Caller, at time.Time) error
	Heard(who route.Caller, at time.Time)
	Waiting(who route.Caller) (done func())
	Forget(tokenHash string, system spillway.MachineID)
}

// Options are what a Proxy is made of. GitLab, Tokens, Contacts, Book and Keep are needed.
type Options struct {
	GitLab    *url.URL          // its path is the relative URL root
	Transport http.RoundTripper // nil = NewTransport(nil)
	Tokens    *route.Tokens
	Contacts  Contacts
	Book      Book
	// Keep keeps a job that was not delivered: gitlab.Client's KeepPending.
	Keep func(ctx context.Context, jobID int64, jobToken string) error
	// Fail ends a job that can neither be delivered nor kept, since its runner knows no
	// two-phase commit or Admit refused it: gitlab.Client's FailJob. nil = it is left to
	// GitLab, where it waits for its timeout.
	Fail func(ctx context.Context, jobID int64, jobToken, reason, trace string) error
	// Admit says whether a job may be given to the runner that asked; a refused one is
	// failed with the reason in its trace. nil = every job may.
	Admit func(ctx context.Context, job gitlab.Payload, who route.Caller) (ok bool, reason string)
	// Offer offers a job that was kept to whoever waits elsewhere, with the bytes that
	// GitLab sent. Whoever takes it books and keeps it from then on. nil = nobody does.
	Offer func(ctx context.Context, job []byte, who route.Caller) (taken bool)
	// Take gives a machine a job that is kept for it elsewhere, before GitLab is asked:
	// jobrouter.Desk's Take. Whoever gives it has booked it. nil = nobody keeps any.
	Take func(ctx context.Context, who route.Caller, request []byte, deliver func(job []byte) error) (given bool)
	// Turn waits until GitLab may be asked for a machine: others with another token may go
	// first for the same jobs. may is false where they still do when the machine has waited
	// for long enough. atOnce: GitLab must answer at once, since they may go first a moment
	// later. jobrouter.Desk's Turn; nil = it always may.
	Turn func(ctx context.Context, who route.Caller) (may, atOnce bool)
	// Asking notes that a machine asks GitLab, until done is called with whether GitLab had
	// no job for it: jobrouter.Desk's Asking. nil = nobody needs to know.
	Asking func(who route.Caller) (done func(noJob bool))
	// Fingerprint is what POST /runners/verify says of a runner token; empty = nothing.
	// nil = nothing is added.
	Fingerprint func(token string) string
	// Discovery answers the discovery of the job router; nil = GitLab does.
	Discovery http.Handler
	// TrustForwarded keeps the X-Forwarded-Host and -Proto that a request brings, as it
	// must be behind an ingress. Otherwise anybody could set them.
	TrustForwarded bool
	Events         Events
	Now            func() time.Time // nil = time.Now
}

// Why a job was withheld or not delivered.
type Why string

// The reasons.
const (
	Ordered    Why = "ordered"    // the machine is ordered to drain
	Refused    Why = "refused"    // route.Contacts does not admit the machine
	Unknown    Why = "unknown"    // the store did not say whether the machine may have it
	HungUp     Why = "hung_up"    // the runner went away before it had the job
	Unreadable Why = "unreadable" // GitLab gave something that isn't a job
	NotAdmit   Why = "admission"  // admission said no
	Spillover  Why = "spillover"  // pools of higher priority, of other runner tokens, go first
)

// Events tells what happens. Each func may be nil; none may block. None is given a
// token or a job's content.
type Events struct {
	Withheld    func(who route.Caller, why Why)                                // 204 without asking GitLab (of Spillover, Turn's own has told more)
	Given       func(who route.Caller, job spillway.JobID)                     // booked and on its way to the runner
	Undelivered func(who route.Caller, job spillway.JobID, why Why, err error) // kept, or err says why not
	Late        func(job spillway.JobID)                                       // told 403: it was not acknowledged in time
	Ended       func(job spillway.JobID)                                       // struck from the book, or it was not in it
	StoreFailed func(what string, err error)
	Upstream    func(err error) // GitLab did not answer, or not to the end
}

func (o *Options) validate() error {
	switch {
	case o.GitLab == nil || (o.GitLab.Scheme != "http" && o.GitLab.Scheme != "https") || o.GitLab.Host == "":
		return errors.New("front proxy: it needs the URL of GitLab, with http or https")
	case o.Tokens == nil || o.Contacts == nil || o.Book == nil || o.Keep == nil:
		return errors.New("front proxy: tokens, contacts, book and keep are needed")
	}
	return nil
}

// NewTransport returns the connections to GitLab. It asks for no compression that the
// client didn't ask for, since it would have to undo it; and it has no limit on how long
// GitLab may think, since job requests are held and a fork of a large repository takes
// minutes.
func NewTransport(config *tls.Config) *http.Transport {
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            (&net.Dialer{Timeout: dialTimeout}).DialContext,
		TLSClientConfig:        config,
		TLSHandshakeTimeout:    dialTimeout,
		ForceAttemptHTTP2:      true,
		DisableCompression:     true,
		MaxIdleConnsPerHost:    idleConnsPerHost,
		IdleConnTimeout:        90 * time.Second,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: MaxHeaderBytes,
		HTTP2:                  &http.HTTP2Config{SendPingTimeout: 30 * time.Second, PingTimeout: 15 * time.Second},
	}
}

// String names a reason for people.
func (w Why) String() string {
	switch w {
	case Ordered:
		return "the machine is ordered to drain"
	case Refused:
		return "the machine can't be registered"
	case Unknown:
		return "the store does not answer"
	case HungUp:
		return "the runner hung up"
	case Unreadable:
		return "GitLab's answer can't be read"
	case NotAdmit:
		return "admission refused it"
	case Spillover:
		return "a pool of higher priority goes first"
	default:
		return fmt.Sprintf("%q", string(w))
	}
}
