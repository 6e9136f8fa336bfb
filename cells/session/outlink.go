package session

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
)

// linkMessages is what a link holds that is to be written [messages].
const linkMessages = 2 * cells.MaxHeld

// outLink is one link to a peer, from dialing to its end.
type outLink struct {
	out     chan *cellsv1.OriginMessage
	cancel  context.CancelCauseFunc
	welcome bool
	heardAt time.Time
	begunAt time.Time
}

// keepLink begins a link when there is none, and ends one that is silent.
func (p *peer) keepLink(now time.Time) {
	l := p.link
	switch {
	case l == nil && !now.Before(p.dialAt):
		p.dial(now)
	case l != nil && now.Sub(l.heardAt) > max(p.origin.opt.Lease, 2*time.Second):
		p.unlink(errSilent)
	}
}

func (p *peer) dial(now time.Time) {
	ctx, cancel := context.WithCancelCause(p.ctx)
	l := &outLink{out: make(chan *cellsv1.OriginMessage, linkMessages), cancel: cancel, heardAt: now, begunAt: now}
	p.link = l
	timing := cells.Timing{Lease: p.origin.opt.Lease}.WithDefaults()
	l.out <- hello(p.origin.opt.Cell, p.origin.opt.Region, p.lease.Epoch, timing)
	turn := p.ctx
	p.calls.Go(func() {
		err := p.carry(ctx, l)
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		cancel(err)
		p.do(turn, func() { p.linkEnded(l, err) })
	})
}

// carry connects and hands on what the peer says until the link ends.
func (p *peer) carry(ctx context.Context, l *outLink) error {
	conn, err := grpc.NewClient(p.opt.Address, p.opt.Dial...)
	if err != nil {
		return err
	}
	defer conn.Close()
	if p.opt.Token != nil {
		token, err := p.opt.Token()
		if err != nil {
			return err
		}
		ctx = metadata.AppendToOutgoingContext(ctx, "authorization", "Bearer "+token)
	}
	ctx, end := context.WithCancel(ctx)
	defer end()
	stream, err := cellsv1.NewCellServiceClient(conn).Link(ctx)
	if err != nil {
		return err
	}
	written := make(chan struct{})
	go func() {
		defer close(written)
		for {
			select {
			case <-ctx.Done():
				return
			case m := <-l.out:
				if stream.Send(m) != nil {
					return // the reader learns why
				}
			}
		}
	}()
	err = p.read(ctx, l, stream)
	end()
	<-written
	return err
}

func (p *peer) read(ctx context.Context, l *outLink, stream cellsv1.CellService_LinkClient) error {
	for {
		m, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return fmt.Errorf("cell %s has ended the link", p.opt.Peer)
		}
		if err != nil {
			return err
		}
		p.do(ctx, func() {
			if p.link == l {
				p.hear(l, m)
			}
		})
	}
}

// hear takes in one message of the peer.
func (p *peer) hear(l *outLink, m *cellsv1.PeerMessage) {
	l.heardAt = time.Now()
	if w := m.GetWelcome(); w != nil {
		p.welcomed(l, w)
		return
	}
	if !l.welcome {
		p.unlink(fmt.Errorf("cell %s did not welcome us first", p.opt.Peer))
		return
	}
	switch m := m.GetMessage().(type) {
	case *cellsv1.PeerMessage_Beat:
		p.beat(l, m.Beat.GetNumber())
	case *cellsv1.PeerMessage_Offers:
		p.book.SetOffers(offersOf(m.Offers))
		p.syncPools()
	case *cellsv1.PeerMessage_Report:
		p.reported(m.Report)
	case *cellsv1.PeerMessage_Unknown:
		p.book.Unknown(refsOf(m.Unknown.GetAttempts()))
	default: // of a newer version, which does not need an answer
	}
}

func (p *peer) welcomed(l *outLink, w *cellsv1.Welcome) {
	timing := cells.Timing{Lease: p.origin.opt.Lease, EndWithin: w.GetEndWithin().AsDuration()}.WithDefaults()
	if err := timing.Validate(); err != nil || w.GetCell() != p.opt.Peer {
		p.unlink(fmt.Errorf("the cell at %s says that it is %.40q with %w", p.opt.Address, w.GetCell(), cmpErr(err)))
		return
	}
	l.welcome = true
	p.book.Link(timing.EndWithin)
	p.mu.Lock()
	p.mu.view.Region = w.GetRegion()
	p.mu.Unlock()
	p.show(StateLinked, nil)
	tell(p.origin.opt.Events.PeerLinked, PeerLinked{Peer: p.opt.Peer, Region: w.GetRegion(), Linked: true})
}

// reported takes in what has become of an attempt.
func (p *peer) reported(m *cellsv1.Report) {
	ref, word := refOf(m.GetJobId(), m.GetAttempt()), wordIn(m)
	if word == 0 || word == cells.WordEnded && m.GetResult() == nil {
		return // of a newer version
	}
	if word == cells.WordEnded {
		p.results[ref] = m.GetResult()
	}
	if word >= cells.WordLost {
		p.details[ref] = "cell " + p.opt.Peer + ": " + m.GetDetail()
	}
	if word == cells.WordDenied {
		p.details[ref] = "cell " + p.opt.Peer + " refused it: " + cmpOr(head(m.GetDetail()), "it does not say why")
	}
	steps := p.book.Heard(time.Now(), ref, word, p.details[ref])
	if word == cells.WordEnded {
		tell(p.origin.opt.Events.CameBack, CameBack{Peer: p.opt.Peer, Ref: ref, Word: word})
	}
	p.steps(steps)
}

// say sends to the peer; without a link nothing is lost: what is not renewed ends.
func (p *peer) say(m *cellsv1.OriginMessage) {
	if p.link == nil {
		return
	}
	select {
	case p.link.out <- m:
	default:
		p.unlink(errSlow)
	}
}

// unlink gives the link up.
func (p *peer) unlink(err error) {
	if l := p.link; l != nil {
		l.cancel(err)
		p.linkEnded(l, err)
	}
}

// linkEnded waits before the next one: longer each time, unless this one has lasted.
func (p *peer) linkEnded(l *outLink, err error) {
	if p.link != l {
		return
	}
	p.link = nil
	p.book.Unlink()
	if l.welcome && time.Since(l.begunAt) > redialMost {
		p.dialWait = redialFirst
	}
	p.dialAt = time.Now().Add(p.dialWait/2 + time.Duration(rand.Int64N(int64(p.dialWait))))
	p.dialWait = min(2*p.dialWait, redialMost)
	p.show(StateCutOff, err)
	if l.welcome || p.dialWait == 2*redialFirst {
		tell(p.origin.opt.Events.PeerLinked, PeerLinked{Peer: p.opt.Peer, Err: err})
	}
	for _, m := range p.machines {
		m.changed = true
	}
}

// maxWhyBytes bounds the sentence with which a peer denies a job [bytes]: it is kept, and
// shown to people.
const maxWhyBytes = 512

// head is the beginning of what a peer says, as one line.
func head(text string) string {
	return strings.Join(strings.Fields(strings.ToValidUTF8(text[:min(len(text), maxWhyBytes)], "")), " ")
}

func cmpErr(err error) error {
	if err == nil {
		return fmt.Errorf("another name than the configured one")
	}
	return err
}
