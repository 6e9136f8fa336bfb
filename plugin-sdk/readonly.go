package pluginsdk

import "context"

// ReadOnly is the part of a provider that changes nothing. Embed it in one that
// only reads, and its pools can be run in shadow mode, where decisions are made,
// recorded and shown but not carried out.
type ReadOnly struct{ Unsupported }

func errReadOnly() error {
	return Errorf(KindUnsupported, "this version of the plugin only reads: run the pool in shadow mode, or use a version that writes")
}

// SetDesired is ErrUnsupported.
func (ReadOnly) SetDesired(context.Context, SetDesired) (int, error) { return 0, errReadOnly() }

// Remove is ErrUnsupported.
func (ReadOnly) Remove(context.Context, string, []string, string) ([]RemoveResult, error) {
	return nil, errReadOnly()
}
