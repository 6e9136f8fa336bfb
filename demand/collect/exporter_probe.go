package collect

import (
	"context"
	"errors"
	"sync"

	"golang.org/x/sync/errgroup"
)

// Probed is what came of Probe.
type Probed struct {
	Asked  int                     // instances
	Failed map[string]*ScrapeError // of Asked, by instance: why it isn't a runner's page
}

// Probe asks the fixed targets of a pool once, as Exporters does, and remembers
// nothing. A pool without fixed targets has none to ask, and whose turn doesn't come
// before ctx ends is not asked. Its error is about the pool: a file that can't be read.
func Probe(ctx context.Context, o ExporterPool) (Probed, error) {
	p, err := newExporterPool("", o, nil)
	if err != nil {
		return Probed{}, err
	}
	defer p.client.CloseIdleConnections()
	p.readFile()
	p.mu.Lock()
	p.choose()
	runners, err := p.mu.runners, p.mu.file.err
	p.mu.Unlock()
	if err != nil {
		return Probed{}, err
	}
	var mu sync.Mutex
	out := Probed{Failed: make(map[string]*ScrapeError)}
	var looks errgroup.Group
	looks.SetLimit(DefaultScrapes)
	for instance, r := range runners {
		looks.Go(func() error {
			failed := p.try(ctx, r.address)
			if failed != nil && ctx.Err() != nil {
				return nil // it was not given its time
			}
			mu.Lock()
			defer mu.Unlock()
			out.Asked++
			if failed != nil {
				out.Failed[instance] = failed
			}
			return nil
		})
	}
	err = looks.Wait() // before out is read
	return out, err
}

// try is why an address has no runner's page; nil = it has one.
func (p *exporterPool) try(ctx context.Context, address string) *ScrapeError {
	ctx, cancel := context.WithTimeout(ctx, DefaultScrapeTimeout)
	defer cancel()
	_, err := p.fetch(ctx, address)
	var failed *ScrapeError
	errors.As(err, &failed) // what fetch promises
	return failed
}
