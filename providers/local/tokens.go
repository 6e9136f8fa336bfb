package local

// maxTokens bounds the writes that are remembered for repetition [entries]: far
// more than a host has in flight, far less than would matter for memory.
const maxTokens = 1_000

// tokens remembers the answers of the last writes, so that one that is repeated is
// answered and not carried out again.
type tokens struct {
	answers map[string]any
	order   []string // oldest first
}

// once does the write unless it was done with this token. A failure is not
// remembered: it has changed nothing.
func once[T any](t *tokens, what, token string, write func() (T, error)) (T, error) {
	if token == "" {
		return write()
	}
	key := what + "\x00" + token
	if answer, ok := t.answers[key].(T); ok {
		return answer, nil
	}
	answer, err := write()
	if err != nil {
		return answer, err
	}
	if t.answers == nil {
		t.answers = make(map[string]any)
	}
	if len(t.order) == maxTokens {
		delete(t.answers, t.order[0])
		t.order = t.order[1:]
	}
	t.answers[key] = answer
	t.order = append(t.order, key)
	return answer, nil
}
