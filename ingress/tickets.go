package ingress

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"sync"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/access"
)

const (
	// metaTicket carries a ticket's number.
	metaTicket = "x-spillway-ticket"
	// ticketFor is how long a ticket is good after it was heard of: one connection takes
	// less.
	ticketFor = 15 * time.Second
	// ticketWithin is how long a caller may be ahead of the word about its ticket.
	ticketWithin = 3 * time.Second
	// maxTickets bounds those that nobody has used yet [tickets].
	maxTickets = 1024
)

// ticket is the word of one replica to another, through the store, about a person whom it
// lets in. Its number is not in it, so that whoever reads along can't use it.
type ticket struct {
	Number string          `json:"number"` // SHA-256, hex
	Job    spillway.JobID  `json:"job"`
	Who    access.Identity `json:"who"`

	heard time.Time
}

// tickets are those that were heard of and not used.
type tickets struct {
	mu    sync.Mutex
	kept  map[string]ticket // by Number
	heard chan struct{}     // closed and replaced at each
}

func newTickets() *tickets {
	return &tickets{kept: map[string]ticket{}, heard: make(chan struct{})}
}

func hashed(number string) string {
	sum := sha256.Sum256([]byte(number))
	return hex.EncodeToString(sum[:])
}

// ticketTopic is where a replica hears of tickets for itself. Names of replicas may be
// longer than those of topics.
func ticketTopic(replica string) string { return "debug/tickets/" + hashed(replica)[:32] }

// issue tells another replica of a ticket, and returns its number.
func (s *Service) issue(ctx context.Context, replica string, job spillway.JobID) (number string, err error) {
	who, ok := access.From(ctx)
	if !ok {
		return "", status.Error(codes.Unauthenticated, "nobody has said who calls")
	}
	number = rand.Text()
	text, err := json.Marshal(ticket{Number: hashed(number), Job: job, Who: who})
	if err != nil {
		return "", status.Errorf(codes.Internal, "a ticket can't be written: %v", err)
	}
	if err := s.opt.Store.PublishFact(ctx, ticketTopic(replica), text); err != nil {
		return "", errStore
	}
	return number, nil
}

// add keeps a ticket that was heard of.
func (t *tickets) add(text []byte, now time.Time) {
	var heard ticket
	if json.Unmarshal(text, &heard) != nil || heard.Number == "" || heard.Job == "" {
		return // nobody's: whoever waits for it is told that there is none
	}
	heard.heard = now
	t.mu.Lock()
	defer t.mu.Unlock()
	if len(t.kept) >= maxTickets {
		for number, old := range t.kept {
			if now.Sub(old.heard) > ticketFor {
				delete(t.kept, number)
			}
		}
	}
	if len(t.kept) >= maxTickets {
		return
	}
	t.kept[heard.Number] = heard
	close(t.heard)
	t.heard = make(chan struct{})
}

var errTicket = status.Error(codes.Unauthenticated, "this is for other replicas of this control plane: no ticket of theirs is known with this number")

// redeem uses the ticket that the caller shows, and returns for whom it is.
func (t *tickets) redeem(ctx context.Context, job spillway.JobID) (access.Identity, error) {
	numbers := metadata.ValueFromIncomingContext(ctx, metaTicket)
	if len(numbers) != 1 {
		return access.Identity{}, errTicket
	}
	ctx, cancel := context.WithTimeout(ctx, ticketWithin)
	defer cancel()
	for {
		found, ok, next := t.take(hashed(numbers[0]), time.Now())
		switch {
		case ok && found.Job == job:
			return found.Who, nil
		case ok:
			return access.Identity{}, status.Error(codes.PermissionDenied, "this ticket is for another job")
		}
		select {
		case <-next:
		case <-ctx.Done():
			return access.Identity{}, errTicket
		}
	}
}

func (t *tickets) take(number string, now time.Time) (found ticket, ok bool, next <-chan struct{}) {
	t.mu.Lock()
	defer t.mu.Unlock()
	found, ok = t.kept[number]
	delete(t.kept, number)
	return found, ok && now.Sub(found.heard) <= ticketFor, t.heard
}
