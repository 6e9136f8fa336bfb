package fake

import (
	"context"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// The calls that can be made to fail.
const (
	opStatus          = "status"
	opList            = "list"
	opSetDesired      = "set_desired"
	opRemove          = "remove"
	opWithdraw        = "withdraw"
	opProtect         = "protect"
	opCompleteHook    = "complete_hook"
	opReportUnhealthy = "report_unhealthy"
)

var ops = []string{opStatus, opList, opSetDesired, opRemove, opWithdraw, opProtect, opCompleteHook, opReportUnhealthy}

// The faults of the plugin itself, as opposed to its cloud's.
const (
	doHang  = "hang"  // until the caller gives up
	doExit  = "exit"  // the process ends in the middle of the call
	doError = "error" // a typed error
)

// fault is a planned misbehaviour. The provider's lock guards left and after.
type fault struct {
	on    string
	do    string
	kind  pluginsdk.Kind
	after int // calls that still pass
	left  int // calls that it still meets; < 0 = every one
}

// misbehave does what the faults say about this call. It is called without the
// lock: a call that hangs must not hold up the others.
func (p *Provider) misbehave(ctx context.Context, op string) error {
	f := p.due(op)
	if f == nil {
		return nil
	}
	switch f.do {
	case doHang:
		<-ctx.Done()
		return pluginsdk.Errorf(pluginsdk.KindTransient, "hung: %w", context.Cause(ctx))
	case doExit:
		if p.Exit != nil {
			p.Exit()
		}
		return pluginsdk.Errorf(pluginsdk.KindTransient, "the plugin died")
	default:
		return pluginsdk.Errorf(f.kind, "planned fault")
	}
}

func (p *Provider) due(op string) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, f := range p.mu.faults {
		switch {
		case f.on != op || f.left == 0:
		case f.after > 0:
			f.after--
		default:
			if f.left > 0 {
				f.left--
			}
			return f
		}
	}
	return nil
}
