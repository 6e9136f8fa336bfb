package child

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"time"
)

// Command is the first argument of a child.
const Command = "child"

// endTimeout is how long a child may take to leave before it is killed.
const endTimeout = 5 * time.Second

// Process is a running child. It is not safe for concurrent use.
type Process struct {
	cmd   *exec.Cmd
	in    io.WriteCloser
	lines chan string
}

// Start runs this program in a role.
func Start(role string, args ...string) (*Process, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p := &Process{cmd: exec.Command(self, append([]string{Command, role}, args...)...), lines: make(chan string, 16)}
	p.cmd.Stderr = os.Stderr
	DieWithParent(p.cmd)
	if p.in, err = p.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting %s: %w", role, err)
	}
	go func() {
		defer close(p.lines)
		for s := bufio.NewScanner(out); s.Scan(); {
			p.lines <- s.Text()
		}
	}()
	return p, nil
}

// PID is the child's process id.
func (p *Process) PID() int { return p.cmd.Process.Pid }

// Say sends one line.
func (p *Process) Say(words ...any) error {
	_, err := fmt.Fprintln(p.in, words...)
	return err
}

// Hear waits for a line that begins with a word, and returns the rest.
func (p *Process) Hear(ctx context.Context, word string) (string, error) {
	select {
	case line, ok := <-p.lines:
		if !ok {
			return "", errors.New("the child process has ended")
		}
		first, rest, _ := strings.Cut(line, " ")
		if first != word {
			return "", fmt.Errorf("the child process says %.200q, expected %q", line, word)
		}
		return rest, nil
	case <-ctx.Done():
		return "", context.Cause(ctx)
	}
}

// Stop asks the child to leave, and kills it if it doesn't.
func (p *Process) Stop() {
	_ = p.in.Close()
	hard := time.AfterFunc(endTimeout, func() { _ = p.cmd.Process.Kill() })
	defer hard.Stop()
	for range p.lines { // until it has ended: its output must be read before Wait
	}
	_ = p.cmd.Wait()
}

// Orders calls f for each line that the parent says, until it says no more.
func Orders(f func(order string, words []string) error) error {
	for s := bufio.NewScanner(os.Stdin); s.Scan(); {
		words := strings.Fields(s.Text())
		if len(words) == 0 {
			continue
		}
		if err := f(words[0], words[1:]); err != nil {
			return err
		}
	}
	return nil
}

// Answer sends one line to the parent.
func Answer(words ...any) { fmt.Println(words...) }
