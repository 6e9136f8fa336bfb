package session

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"strings"

	"google.golang.org/grpc/metadata"

	"github.com/spillway-ci/spillway"
)

// maxTokenBytes bounds a bearer token [bytes]; a longer one is wrong, whatever it
// says.
const maxTokenBytes = 512

// Authenticator says which pool a token stands for. A runner can take what that
// pool can take, and nothing else: there is no other source of its capability.
type Authenticator interface {
	// Pool returns the token's pool; false when the token is not known. It must
	// not tell by its duration how much of a token was right. All runners of a
	// token share the pool: nobody changes it.
	Pool(ctx context.Context, token string) (*spillway.Pool, bool)
}

// Tokens is an Authenticator over a fixed set of tokens. It keeps their hashes
// only, so that the tokens themselves are in nobody's memory dump twice.
type Tokens struct {
	pools map[[sha256.Size]byte]tokenPool
}

type tokenPool struct {
	digest [sha256.Size]byte
	pool   *spillway.Pool
}

// NewTokens keeps the pool of each token. Several tokens may name one pool, so
// that a token can be replaced without a gap. An empty token is never valid.
func NewTokens(pools map[string]spillway.Pool) *Tokens {
	t := &Tokens{pools: make(map[[sha256.Size]byte]tokenPool, len(pools))}
	for token, pool := range pools {
		if token == "" {
			continue
		}
		digest := sha256.Sum256([]byte(token))
		t.pools[digest] = tokenPool{digest, &pool}
	}
	return t
}

// Pool looks the token up by its hash. Nobody can choose hashes, so the time that
// the look-up takes tells nothing of a token; the comparison is constant-time all
// the same.
func (t *Tokens) Pool(_ context.Context, token string) (*spillway.Pool, bool) {
	digest := sha256.Sum256([]byte(token))
	found, ok := t.pools[digest]
	if !ok || subtle.ConstantTimeCompare(digest[:], found.digest[:]) != 1 {
		return nil, false
	}
	return found.pool, true
}

// bearer returns the token of the call's metadata.
func bearer(ctx context.Context) (string, bool) {
	values := metadata.ValueFromIncomingContext(ctx, "authorization")
	if len(values) != 1 {
		return "", false
	}
	scheme, token, ok := strings.Cut(values[0], " ")
	if !ok || !strings.EqualFold(scheme, "bearer") || token == "" || len(token) > maxTokenBytes {
		return "", false
	}
	return token, true
}
