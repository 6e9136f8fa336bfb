package route

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sync/atomic"

	"github.com/spillway-ci/spillway"
)

// ErrUnknownToken says that no pool is served by a runner token.
var ErrUnknownToken = errors.New("no pool is served by this runner token")

// Binding is what one runner token serves.
type Binding struct {
	Pools []spillway.Pool // by priority, then name; at least one

	token string
}

// Tokens maps runner tokens to the pools that they serve. It is safe for concurrent
// use. It prints as a number of tokens, never as what they are.
type Tokens struct {
	bound atomic.Pointer[bindings]
}

// bindings are those of one configuration.
type bindings struct {
	byHash map[string]Binding
	// groups are the pools that take the same jobs, where there are several; alike is the
	// group of each of them, by its name. contested are those of several tokens.
	groups    [][]Rival
	alike     map[string][]Rival
	contested []Rival
}

// NewTokens binds each token to its pools. An empty token and one without pools are
// left out: they can't have been meant.
func NewTokens(pools map[string][]spillway.Pool) *Tokens {
	t := &Tokens{}
	t.Replace(pools)
	return t
}

// Replace puts other bindings in the place of all of them, as a reload of the
// configuration does. Whoever looks a token up sees the old ones or the new ones whole.
func (t *Tokens) Replace(pools map[string][]spillway.Pool) {
	byHash := make(map[string]Binding, len(pools))
	for token, served := range pools {
		if token == "" || len(served) == 0 {
			continue
		}
		served = slices.Clone(served)
		slices.SortFunc(served, func(a, b spillway.Pool) int {
			return cmp.Or(cmp.Compare(a.Priority, b.Priority), cmp.Compare(a.Name, b.Name))
		})
		byHash[HashToken(token)] = Binding{Pools: served, token: token}
	}
	b := &bindings{byHash: byHash, alike: map[string][]Rival{}}
	b.group()
	t.bound.Store(b)
}

// HashToken is the SHA-256 of a token in hex. A runner token is long and random, so
// that its hash may be shown where the token may not.
func HashToken(token string) string {
	sum := sha256.Sum256([]byte(token))
	return hex.EncodeToString(sum[:])
}

// Lookup returns the pools that token serves, the first by priority first.
func (t *Tokens) Lookup(token string) (hash string, pools []spillway.Pool, ok bool) {
	if token == "" {
		return "", nil, false
	}
	hash = HashToken(token)
	b, ok := t.bound.Load().byHash[hash]
	if !ok {
		return "", nil, false
	}
	return hash, b.Pools, true
}

// Pools returns the pools of the token with this hash.
func (t *Tokens) Pools(hash string) ([]spillway.Pool, bool) {
	b, ok := t.bound.Load().byHash[hash]
	return b.Pools, ok
}

// Reveal returns the token with this hash, for the one who polls GitLab with it.
func (t *Tokens) Reveal(hash string) (token string, ok bool) {
	b, ok := t.bound.Load().byHash[hash]
	return b.token, ok
}

// Hashes returns the hashes of all tokens, sorted.
func (t *Tokens) Hashes() []string {
	return slices.Sorted(maps.Keys(t.bound.Load().byHash))
}

// String tells how many tokens there are.
func (t *Tokens) String() string {
	return fmt.Sprintf("%d runner tokens", len(t.bound.Load().byHash))
}

// GoString is String, so that %#v shows no token either.
func (t *Tokens) GoString() string { return t.String() }

// LogValue is String.
func (t *Tokens) LogValue() slog.Value { return slog.StringValue(t.String()) }

// String tells which pools a token serves, and not the token.
func (b Binding) String() string {
	names := make([]string, len(b.Pools))
	for i := range b.Pools {
		names[i] = b.Pools[i].Name
	}
	return fmt.Sprintf("a runner token of %v", names)
}

// GoString is String.
func (b Binding) GoString() string { return b.String() }
