package pluginsdk

import "reflect"

// maxTokens bounds the writes that are remembered for repetition [entries]: far
// more than a host has in flight, far less than would matter for memory.
const maxTokens = 1_000

// Tokens remembers the answers of the last 1000 writes by their tokens, for
// providers whose cloud has no such memory. The zero value is ready for use. It has
// no lock: hold the one that guards what the writes change, or two calls with one
// token could both be carried out.
type Tokens struct {
	answers map[tokenKey]any
	order   []tokenKey // oldest first
}

// tokenKey has the answer's type because each method of the contract has one of
// its own: one token may come with two methods.
type tokenKey struct {
	answer       reflect.Type
	group, token string
}

// Once carries write out and returns its answer, or returns the answer that write
// gave to this token before. A failure is not remembered: it changed nothing. No
// token at all ("") is always carried out.
func Once[T any](t *Tokens, group, token string, write func() (T, error)) (T, error) {
	if token == "" {
		return write()
	}
	key := tokenKey{reflect.TypeFor[T](), group, token}
	if answer, ok := t.answers[key].(T); ok {
		return answer, nil
	}
	answer, err := write()
	if err != nil {
		return answer, err
	}
	if t.answers == nil {
		t.answers = make(map[tokenKey]any)
	}
	if len(t.order) == maxTokens {
		delete(t.answers, t.order[0])
		t.order = t.order[1:]
	}
	t.answers[key] = answer
	t.order = append(t.order, key)
	return answer, nil
}
