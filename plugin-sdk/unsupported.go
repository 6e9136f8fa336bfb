package pluginsdk

import "context"

// Unsupported is the optional half of a provider, for clouds that can't do any of
// it: every method answers ErrUnsupported. Embed it and write over it what the
// cloud can do.
type Unsupported struct{}

func errUnsupported(what string) error {
	return Errorf(KindUnsupported, "this provider can't %s", what)
}

// Withdraw is ErrUnsupported.
func (Unsupported) Withdraw(context.Context, string, int, string) (WithdrawResult, error) {
	return WithdrawResult{}, errUnsupported("take back what was asked for")
}

// Protect is ErrUnsupported.
func (Unsupported) Protect(context.Context, string, []string, bool) error {
	return errUnsupported("protect instances from the group's own scale-in")
}

// CompleteHook is ErrUnsupported.
func (Unsupported) CompleteHook(context.Context, string, []string) error {
	return errUnsupported("complete lifecycle hooks")
}

// ReportUnhealthy is ErrUnsupported.
func (Unsupported) ReportUnhealthy(context.Context, string, []string) error {
	return errUnsupported("have unhealthy instances replaced")
}

// Findings is ErrUnsupported.
func (Unsupported) Findings(context.Context, []string) ([]Finding, error) {
	return nil, errUnsupported("look for settings that work against Spillway")
}

// Count is ErrUnsupported.
func (Unsupported) Count(context.Context, string) (Count, error) {
	return Count{}, errUnsupported("read metrics")
}

// Watch is ErrUnsupported.
func (Unsupported) Watch(context.Context, []string, func(Interruption)) error {
	return errUnsupported("listen for interruptions")
}
