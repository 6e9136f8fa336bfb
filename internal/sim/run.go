package sim

import (
	"context"
	"errors"

	"github.com/spillway-ci/spillway/internal/scenario"
)

// ErrUnsupported is wrapped when a scenario asks for what the cloud that it is played
// on can't do.
var ErrUnsupported = errors.New("not simulated")

// Run plays s on the fake cloud, to its end or until nothing more can happen. Its
// error says that the story could not be played; how it went is in the result.
func Run(ctx context.Context, s *scenario.Scenario) (*Result, error) {
	return RunWith(ctx, s, Options{})
}

// RunWith is Run on whatever cloud o says.
func RunWith(ctx context.Context, s *scenario.Scenario, o Options) (*Result, error) {
	w, err := newWorld(ctx, s, o)
	if err != nil {
		return nil, err
	}
	for _, c := range w.all {
		c.begin()
	}
	if err := w.play(); err != nil {
		return nil, err
	}
	return w.result(), nil
}
