package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// answerWithin bounds what the browser may take for one thing; on a loaded machine its
// start takes many seconds.
const answerWithin = 90 * time.Second

// chromium is a browser without a window, driven by the DevTools protocol over pipes:
// https://chromedevtools.github.io/devtools-protocol/. One page is open.
type chromium struct {
	t       *testing.T
	to      io.Writer
	session string

	mu struct {
		sync.Mutex
		last    int
		answers map[int]chan message
		asked   []string // addresses of all requests, in order
		wrong   []string // what pages complain of: a violated policy, a script's mistake, a file that is not there
	}
	loaded chan struct{}
	ended  chan struct{}
}

// message is an answer or an event.
type message struct {
	ID     int
	Method string
	Params json.RawMessage
	Result json.RawMessage
	Error  *struct{ Message string }
}

func startChromium(t *testing.T) *chromium {
	t.Helper()
	program := peertest.Program(t, "chromium", "the site was not opened in a browser")
	commands, to, err := os.Pipe()
	require.NoError(t, err)
	from, answers, err := os.Pipe()
	require.NoError(t, err)
	// The flags keep it from asking its maker for anything; a root user has no sandbox.
	cmd := exec.Command(program, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--disable-quic", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	cmd.ExtraFiles = []*os.File{commands, answers} // 3 and 4
	var log bytes.Buffer
	cmd.Stderr = &log
	require.NoError(t, cmd.Start())
	require.NoError(t, errors.Join(commands.Close(), answers.Close()))
	c := &chromium{t: t, to: to, loaded: make(chan struct{}, 1), ended: make(chan struct{})}
	c.mu.answers = map[int]chan message{}
	go c.read(from)
	t.Cleanup(func() {
		_, _ = c.try("", "Browser.close", nil)
		_ = to.Close()
		_ = cmd.Wait()
		if t.Failed() {
			t.Logf("chromium: %s", log.Bytes())
		}
	})
	target, err := c.try("", "Target.createTarget", map[string]any{"url": "about:blank"})
	if err != nil {
		peertest.Broken(t, "chromium is installed but does not run: %v", err)
	}
	var opened struct{ TargetID, SessionID string }
	require.NoError(t, json.Unmarshal(target, &opened))
	attached, err := c.try("", "Target.attachToTarget", map[string]any{"targetId": opened.TargetID, "flatten": true})
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(attached, &opened))
	c.session = opened.SessionID
	for _, domain := range []string{"Page", "Runtime", "Network", "Log", "Accessibility"} {
		c.call(domain+".enable", nil, nil)
	}
	return c
}

// read hands out what the browser says, each a JSON text that ends with a NUL.
func (c *chromium) read(from io.ReadCloser) {
	defer close(c.ended)
	defer func() { _ = from.Close() }()
	for in := bufio.NewReader(from); ; {
		text, err := in.ReadBytes(0)
		if err != nil {
			return
		}
		var m message
		if json.Unmarshal(bytes.TrimRight(text, "\x00"), &m) != nil {
			return
		}
		c.take(m)
	}
}

func (c *chromium) take(m message) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case m.ID != 0:
		if to, waits := c.mu.answers[m.ID]; waits {
			to <- m
			delete(c.mu.answers, m.ID)
		}
	case m.Method == "Page.loadEventFired":
		select {
		case c.loaded <- struct{}{}:
		default:
		}
	case m.Method == "Network.requestWillBeSent":
		var sent struct{ Request struct{ URL string } }
		if json.Unmarshal(m.Params, &sent) == nil {
			c.mu.asked = append(c.mu.asked, sent.Request.URL)
		}
	case m.Method == "Runtime.exceptionThrown" || m.Method == "Log.entryAdded":
		c.mu.wrong = append(c.mu.wrong, string(m.Params))
	}
}

// try asks the browser for something.
func (c *chromium) try(session, method string, params any) (json.RawMessage, error) {
	c.mu.Lock()
	c.mu.last++
	id, answer := c.mu.last, make(chan message, 1)
	c.mu.answers[id] = answer
	c.mu.Unlock()
	ask := map[string]any{"id": id, "method": method}
	if session != "" {
		ask["sessionId"] = session
	}
	if params != nil {
		ask["params"] = params
	}
	text, err := json.Marshal(ask)
	if err != nil {
		return nil, err
	}
	if _, err := c.to.Write(append(text, 0)); err != nil {
		return nil, err
	}
	select {
	case m := <-answer:
		if m.Error != nil {
			return nil, fmt.Errorf("%s: %s", method, m.Error.Message)
		}
		return m.Result, nil
	case <-c.ended:
		return nil, fmt.Errorf("%s: it has ended", method)
	case <-time.After(answerWithin):
		return nil, fmt.Errorf("%s: no answer within %s", method, answerWithin)
	}
}

// call asks the page for something that must be done.
func (c *chromium) call(method string, params map[string]any, into any) {
	c.t.Helper()
	result, err := c.try(c.session, method, params)
	require.NoError(c.t, err)
	if into != nil {
		require.NoError(c.t, json.Unmarshal(result, into))
	}
}

// open opens a page and returns when it is there with all that belongs to it.
func (c *chromium) open(url string) {
	c.t.Helper()
	c.expectLoad(func() { c.call("Page.navigate", map[string]any{"url": url}, nil) })
}

// expectLoad does something and waits for the page that it leads to.
func (c *chromium) expectLoad(do func()) {
	c.t.Helper()
	select {
	case <-c.loaded:
	default:
	}
	do()
	select {
	case <-c.loaded:
	case <-time.After(answerWithin):
		require.Fail(c.t, "no page was loaded")
	}
}

// value is what an expression in the page gives.
func value[V any](c *chromium, expression string) V {
	c.t.Helper()
	var answer struct {
		Result           struct{ Value json.RawMessage }
		ExceptionDetails json.RawMessage
	}
	c.call("Runtime.evaluate", map[string]any{"expression": expression, "returnByValue": true}, &answer)
	require.Empty(c.t, answer.ExceptionDetails, expression)
	var v V
	require.NoError(c.t, json.Unmarshal(answer.Result.Value, &v), expression)
	return v
}

// key presses a key; text is what it writes, if it does.
func (c *chromium) key(name, text string) {
	c.t.Helper()
	down := map[string]any{"type": "keyDown", "key": name, "code": name, "windowsVirtualKeyCode": keyCodes[name]}
	if text != "" {
		down["text"] = text
	}
	c.call("Input.dispatchKeyEvent", down, nil)
	c.call("Input.dispatchKeyEvent", map[string]any{"type": "keyUp", "key": name, "code": name, "windowsVirtualKeyCode": keyCodes[name]}, nil)
}

// keyCodes are the numbers by which a browser knows keys that do something.
var keyCodes = map[string]int{"Tab": 9, "Enter": 13, "Escape": 27, "ArrowUp": 38, "ArrowDown": 40}

// complaints are what pages have complained of.
func (c *chromium) complaints() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.wrong
}

// requests are all addresses that were asked since the last call.
func (c *chromium) requests() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	asked := c.mu.asked
	c.mu.asked = nil
	return asked
}
