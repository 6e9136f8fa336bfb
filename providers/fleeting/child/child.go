package child

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"

	"github.com/spillway-ci/spillway/internal/program"
)

// ErrStart is a program that did not start, or is no plugin of the expected kind.
// The text says why.
var ErrStart = errors.New("the plugin did not start")

const (
	// DefaultStartTimeout is from exec to handshake. Less fails on a machine that is
	// busy starting everything at once.
	DefaultStartTimeout = 10 * time.Second
	// MaxMessageBytes bounds one gRPC message in either direction [bytes].
	MaxMessageBytes = 16 << 20
	// maxSocketBytes is what the kernel takes as a socket's path, and socketNameBytes
	// what go-plugin's names add to a directory [bytes].
	maxSocketBytes  = 107
	socketNameBytes = len("/plugin-dir1234567890/plugin1234567890")
	// deathNotice is how long a process may take to be seen dead after its connection
	// broke, on a machine that is busy.
	deathNotice = 2 * time.Second
)

// Spec says how to start a program.
type Spec struct {
	CookieKey, CookieValue string
	ProtocolVersions       []int // that the host offers
	AutoMTLS               bool
	Env                    []string // "NAME=value": all that it sees, apart from go-plugin's own
	StartTimeout           time.Duration
	Say                    func(line string) // what it says on its outputs; may be nil
	// Redact takes secrets out of a line before a part of it is kept: half of one would not
	// be known for what it is. May be nil.
	Redact func(line string) string
}

// Child is a program that runs.
type Child struct {
	process *program.Process
	client  *plugin.Client
	said    *lines
	conn    *grpc.ClientConn
}

// Start starts the program and connects to it. When it fails, or ctx ends before,
// no process is left.
func Start(ctx context.Context, img *program.Image, s Spec) (*Child, error) {
	sockets, err := socketParent()
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrStart, err)
	}
	said := &lines{say: s.Say, redact: s.Redact}
	proc := program.New(img, s.Env, said)
	c := &Child{process: proc, said: said, client: plugin.NewClient(s.clientConfig(proc, said, sockets))}
	c.conn, err = s.connect(ctx, c)
	if err == nil {
		return c, nil
	}
	c.Kill()
	return nil, fmt.Errorf("%w: %w", ErrStart, said.explain(err))
}

// explain adds what the process said to go-plugin's error, or says it better.
func (l *lines) explain(err error) error {
	words := l.words.String()
	switch {
	case errors.Is(err, errMute), errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.Contains(words, "not meant to be executed directly"):
		return errors.New("it waits for another magic cookie")
	}
	// go-plugin's hints are in lines of their own.
	text, _, _ := strings.Cut(err.Error(), "\n")
	if words != "" {
		text += "; it said: " + words
	}
	return errors.New(strings.TrimRight(text, ": "))
}

// errMute is a program that listens and takes no connection. go-plugin's own timeout
// ends with the handshake.
var errMute = errors.New("it answers nothing after its handshake")

func (s *Spec) connect(ctx context.Context, c *Child) (*grpc.ClientConn, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*s.startTimeout(), errMute)
	defer cancel()
	stop := context.AfterFunc(ctx, c.process.End)
	defer stop()
	conn, err := dispense(c.client)
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	return conn, err
}

func (s *Spec) startTimeout() time.Duration {
	if s.StartTimeout <= 0 {
		return DefaultStartTimeout
	}
	return s.StartTimeout
}

func (s *Spec) clientConfig(proc *program.Process, said *lines, sockets string) *plugin.ClientConfig {
	versions := map[int]plugin.PluginSet{}
	for _, v := range s.ProtocolVersions {
		versions[v] = plugin.PluginSet{dispensed: connection{}}
	}
	return &plugin.ClientConfig{
		// The version is one of versions already, so that go-plugin adds none.
		HandshakeConfig: plugin.HandshakeConfig{
			ProtocolVersion: uint(s.ProtocolVersions[0]), MagicCookieKey: s.CookieKey, MagicCookieValue: s.CookieValue,
		},
		VersionedPlugins: versions,
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, dir string) (runner.Runner, error) {
			proc.Attach(cmd.Env, dir) // go-plugin's own variables
			return proc, nil
		},
		SkipHostEnv:      true,
		AutoMTLS:         s.AutoMTLS,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		StartTimeout:     s.startTimeout(),
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: sockets},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(MaxMessageBytes), grpc.MaxCallSendMsgSize(MaxMessageBytes),
		)},
		SyncStdout: said,
		SyncStderr: said,
		Logger:     hclog.NewNullLogger(), // all that it says comes back as an error
	}
}

// socketParent is where go-plugin makes the private directory of the socket: in the
// one that our own host gave us, which it removes also when we were killed; or where
// temporary files are.
func socketParent() (string, error) {
	for _, dir := range []string{os.Getenv(plugin.EnvUnixSocketDir), os.TempDir()} {
		if dir != "" && len(dir)+socketNameBytes <= maxSocketBytes {
			return filepath.Clean(dir), nil
		}
	}
	return "", fmt.Errorf("the path of a socket in %s would have more than %d bytes: set TMPDIR to a shorter one", os.TempDir(), maxSocketBytes)
}

// dispensed is not on the wire: any name would do.
const dispensed = "connection"

// connection dispenses the bare connection.
type connection struct{ plugin.NetRPCUnsupportedPlugin }

func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host serves nothing")
}

func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

func dispense(client *plugin.Client) (*grpc.ClientConn, error) {
	rpc, err := client.Client()
	if err != nil {
		return nil, err
	}
	raw, err := rpc.Dispense(dispensed)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("dispensed %T", raw)
	}
	return conn, nil
}

// Conn is the connection to what the program serves.
func (c *Child) Conn() *grpc.ClientConn { return c.conn }

// PID is the process's number.
func (c *Child) PID() int { return c.process.PID() }

// Alive reports whether the process is there.
func (c *Child) Alive() bool {
	select {
	case <-c.process.Exited():
		return false
	default:
		return true
	}
}

// Died reports whether the process is gone, now or within the short time that it
// may take to be seen after a connection broke, and how it ended. ctx can only shorten
// that.
func (c *Child) Died(ctx context.Context) (fate string, died bool) {
	ctx, cancel := context.WithTimeout(ctx, deathNotice)
	defer cancel()
	if !c.process.EndsBefore(ctx) {
		return "", false
	}
	c.process.Await()
	fate = c.process.Fate()
	if words := c.said.words.String(); words != "" {
		fate += "; it said: " + words
	}
	return fate, true
}

// Kill ends the process and all that it started, and returns when they are gone. It
// may be called by anybody, at any time, more than once.
func (c *Child) Kill() {
	c.process.End()
	c.process.Await()
	c.client.Kill() // frees the connection and the socket's directory
}
