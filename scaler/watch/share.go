package watch

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"time"

	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/scaler/evidence"
)

// showTTL is how long the others believe what was shown: as long as a machine that is
// not heard. It is shown again when it has changed, and before a third of that is over.
const showTTL = 45 * time.Second

// showEvery is the least time between two showings: looks come in bursts, and nobody
// else acts on what changes within.
const showEvery = 2 * time.Second

// shown is what was last shown of a pool, here or by whoever scales it.
type shown struct {
	sum     [sha256.Size]byte // of the text: a large pool's is a MiB
	at      time.Time
	verdict evidence.Verdict // in the text, where it was read
}

func showName(pool string) string { return "machines/" + pool }

// picture is a verdict as it is shown.
type picture struct {
	Machines      []router.Machine `json:"machines"`
	CannotDrain   string           `json:"cannot_drain,omitempty"`
	Unaccounted   string           `json:"unaccounted,omitempty"`
	StoppedByHook bool             `json:"by_hook,omitempty"`
	Unseen        int              `json:"unseen,omitempty"`
	CannotServe   string           `json:"cannot_serve,omitempty"`
}

// show shows a verdict to the other replicas.
func (m *Machines) show(ctx context.Context, pool string, mem *memory, epoch uint64, v evidence.Verdict) error {
	now := m.Now()
	if now.Sub(mem.shown.at) < showEvery {
		return nil
	}
	data, err := json.Marshal(picture(v))
	if err != nil {
		return fmt.Errorf("encoding what is known of the machines: %w", err)
	}
	sum := sha256.Sum256(data)
	if sum == mem.shown.sum && now.Sub(mem.shown.at) < showTTL/3 {
		return nil
	}
	if err := m.Boards.PutBoard(ctx, showName(pool), epoch, data, showTTL); err != nil {
		return err
	}
	mem.shown = shown{sum: sum, at: now}
	return nil
}

// shown reads what whoever scales the pool has shown.
func (m *Machines) shown(ctx context.Context, pool string, mem *memory) (v evidence.Verdict, found bool, err error) {
	data, found, err := m.Boards.Board(ctx, showName(pool))
	if err != nil || !found {
		return evidence.Verdict{}, false, err
	}
	sum := sha256.Sum256(data)
	if mem.shown.at.IsZero() && sum == mem.shown.sum {
		return mem.shown.verdict, true, nil
	}
	var p picture
	if err := json.Unmarshal(data, &p); err != nil {
		return evidence.Verdict{}, false, fmt.Errorf("what is known of the machines: %w", err)
	}
	mem.shown = shown{sum: sum, verdict: evidence.Verdict(p)} // no time: it isn't ours
	return evidence.Verdict(p), true, nil
}
