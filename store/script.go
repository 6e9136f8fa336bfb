package store

import (
	"context"
	"crypto/sha1"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/redis/go-redis/v9"
)

//go:embed scripts/*.lua
var scriptFiles embed.FS

// script is a Lua script as the server knows it.
type script struct {
	body string
	sha  string
}

// mustScript reads scripts/<name>.lua, after the libraries that it uses. The files
// are compiled in: a missing one is found by the first test.
func mustScript(name string, libraries ...string) *script {
	var body []byte
	for _, n := range append(libraries, name) {
		b, err := scriptFiles.ReadFile("scripts/" + n + ".lua")
		if err != nil {
			panic(err)
		}
		body = append(body, b...)
	}
	sum := sha1.Sum(body) // the name that Redis itself gives to a script
	return &script{body: string(body), sha: hex.EncodeToString(sum[:])}
}

// call is one run of a script. Its keys share one hash tag.
type call struct {
	script *script
	keys   []string
	args   []any
}

// reply is the answer to one call.
type reply struct {
	val any
	err error
}

// onceCmd is never repeated by the client. A Cluster's client would otherwise
// send a whole pipeline again when a connection breaks, also what has been run.
type onceCmd struct{ *redis.Cmd }

func (onceCmd) NoRetry() bool { return true }

// run sends the calls in one pipeline. The answers are in their order; a call that
// failed says nothing about the others.
func (s *Store) run(ctx context.Context, calls []call) []reply {
	replies := make([]reply, len(calls))
	all := make([]int, len(calls))
	for i := range calls {
		all[i] = i
	}
	s.runSome(ctx, calls, all, replies, false)
	// A server that was restarted, or a new master, has to be told the text once.
	var unknown []int
	for i := range replies {
		if redis.HasErrorPrefix(replies[i].err, "NOSCRIPT") {
			unknown = append(unknown, i)
		}
	}
	if len(unknown) > 0 {
		s.runSome(ctx, calls, unknown, replies, true)
	}
	return replies
}

// runSome runs the calls with the given indices, by name or by text.
func (s *Store) runSome(ctx context.Context, calls []call, indices []int, replies []reply, text bool) {
	if len(indices) == 0 {
		return
	}
	pipe := s.rdb.Pipeline()
	cmds := make([]onceCmd, len(indices))
	for n, i := range indices {
		cmds[n] = onceCmd{redis.NewCmd(ctx, calls[i].command(text)...)}
		_ = pipe.Process(ctx, cmds[n]) // queues it; never fails
	}
	_, err := pipe.Exec(ctx)
	for n, i := range indices {
		val, cmdErr := cmds[n].Result()
		if errors.Is(cmdErr, redis.Nil) {
			cmdErr = nil
		}
		// A pipeline that never began leaves its commands without an error.
		if cmdErr == nil && val == nil && err != nil && !errors.Is(err, redis.Nil) {
			cmdErr = err
		}
		replies[i] = reply{val: val, err: cmdErr}
	}
}

func (c *call) command(text bool) []any {
	verb, what := "evalsha", c.script.sha
	if text {
		verb, what = "eval", c.script.body
	}
	cmd := make([]any, 0, 3+len(c.keys)+len(c.args))
	cmd = append(cmd, verb, what, len(c.keys))
	for i := range c.keys {
		cmd = append(cmd, &c.keys[i]) // the string itself would be copied to the heap
	}
	return append(cmd, c.args...)
}

// runOne runs a single call.
func (s *Store) runOne(ctx context.Context, c call) (any, error) {
	r := s.run(ctx, []call{c})[0]
	return r.val, r.err
}

// errReply is wrapped when a script's answer has not the form that it should have.
var errReply = errors.New("unexpected answer of a script")

// list reads an array.
func (r reply) list() ([]any, error) {
	if r.err != nil {
		return nil, r.err
	}
	l, ok := r.val.([]any)
	if !ok {
		return nil, fmt.Errorf("%w: %T instead of a list", errReply, r.val)
	}
	return l, nil
}

// pair reads an array of two arrays.
func (r reply) pair() (first, second []any, err error) {
	l, err := r.list()
	if err != nil {
		return nil, nil, err
	}
	if len(l) == 2 {
		a, okA := l[0].([]any)
		b, okB := l[1].([]any)
		if okA && okB {
			return a, b, nil
		}
	}
	return nil, nil, fmt.Errorf("%w: not two lists", errReply)
}

func asString(v any) string {
	s, _ := v.(string)
	return s
}

func asInt(v any) int64 {
	n, _ := v.(int64)
	return n
}
