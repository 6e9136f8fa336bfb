package providers

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/go-plugin"
	"github.com/hashicorp/go-plugin/runner"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/spillway-ci/spillway/internal/program"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
)

// ErrLaunch is a plugin that did not start. The text says why.
var ErrLaunch = errors.New("plugin did not start")

// deathNotice is how long a process whose connection broke is left to end by itself:
// how it ended says more than that we killed it.
const deathNotice = 200 * time.Millisecond

// launcher makes sessions of one plugin.
type launcher struct {
	spec   Spec
	image  *program.Image
	parent string // directory that the directories for sockets are made in
	output *output
	timing Timing
	hung   chan<- *session
}

// launch starts a process and brings it to where calls can be made. When it
// fails no process is left.
func (l *launcher) launch(ctx context.Context) (*session, error) {
	s, err := l.begin(ctx)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, s.process.End)
	defer stop()
	if err := l.configure(ctx, s); err != nil {
		transient := errors.Is(err, pluginsdk.ErrTransient)
		if transient {
			notice, cancel := context.WithTimeout(ctx, deathNotice)
			s.process.EndsBefore(notice)
			cancel()
		}
		s.discard()
		if transient && !s.process.WasKilled() { // also if its end was seen late
			err = l.explain(s.process, err)
		}
		return nil, err
	}
	if ctx.Err() != nil {
		s.discard()
		return nil, ctx.Err()
	}
	s.since = time.Now()
	return s, nil
}

// begin starts a process and connects to it. When it fails no process is left.
func (l *launcher) begin(ctx context.Context) (*session, error) {
	dir, err := os.MkdirTemp(l.parent, "s")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrLaunch, err)
	}
	l.output.words.Forget()
	proc := program.New(l.image, l.spec.environment(), l.output)
	cfg := l.clientConfig(proc, dir)
	client := plugin.NewClient(cfg)
	stop := context.AfterFunc(ctx, proc.End)
	defer stop()

	s := &session{client: client, process: proc, dir: dir, hung: l.hung}
	if err := l.connect(ctx, s, cfg); err != nil {
		s.discard()
		return nil, err
	}
	return s, nil
}

func (l *launcher) clientConfig(proc *program.Process, dir string) *plugin.ClientConfig {
	return &plugin.ClientConfig{
		HandshakeConfig:  pluginsdk.Handshake(),
		VersionedPlugins: versions(),
		RunnerFunc: func(_ hclog.Logger, cmd *exec.Cmd, _ string) (runner.Runner, error) {
			proc.Attach(cmd.Env, dir) // go-plugin's own variables
			return proc, nil
		},
		SkipHostEnv:      true,
		AutoMTLS:         true,
		AllowedProtocols: []plugin.Protocol{plugin.ProtocolGRPC},
		StartTimeout:     l.timing.Start,
		UnixSocketConfig: &plugin.UnixSocketConfig{TempDir: dir},
		GRPCDialOptions: []grpc.DialOption{grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(pluginsdk.MaxMessageBytes),
			grpc.MaxCallSendMsgSize(pluginsdk.MaxMessageBytes),
		)},
		SyncStdout: l.output,
		SyncStderr: l.output,
		Logger:     hclog.NewNullLogger(), // all that it says, we return as an error
	}
}

// versions are those of the contract that this host speaks.
func versions() map[int]plugin.PluginSet {
	offered := map[int]plugin.PluginSet{}
	for v := pluginsdk.OldestContract; v <= pluginsdk.ContractVersion; v++ {
		offered[v] = plugin.PluginSet{pluginsdk.PluginName: connection{}}
	}
	return offered
}

// connection dispenses the bare connection: health is on it too.
type connection struct{ plugin.NetRPCUnsupportedPlugin }

func (connection) GRPCServer(*plugin.GRPCBroker, *grpc.Server) error {
	return errors.New("a host serves nothing")
}

func (connection) GRPCClient(_ context.Context, _ *plugin.GRPCBroker, conn *grpc.ClientConn) (any, error) {
	return conn, nil
}

// errMute is a plugin that listens and takes no connection. go-plugin's own
// timeout ends with the handshake.
var errMute = errors.New("answers nothing after its handshake")

// connect starts the process, waits for its handshake and connects to it.
func (l *launcher) connect(ctx context.Context, s *session, cfg *plugin.ClientConfig) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 2*l.timing.Start, errMute)
	defer cancel()
	stop := context.AfterFunc(ctx, s.process.End)
	defer stop()
	conn, err := dispense(s.client, cfg)
	if err == nil {
		s.provider = pluginsdk.NewClient(conn)
		s.health = grpc_health_v1.NewHealthClient(conn)
		s.contract = s.client.NegotiatedVersion()
		err = s.ping(ctx)
	}
	if err == nil {
		return nil
	}
	if cause := context.Cause(ctx); cause != nil {
		err = cause
	}
	s.process.End()
	return l.explain(s.process, err)
}

func dispense(client *plugin.Client, cfg *plugin.ClientConfig) (*grpc.ClientConn, error) {
	rpc, err := pluginsdk.Connect(client, cfg)
	if err != nil {
		return nil, err
	}
	raw, err := rpc.Dispense(pluginsdk.PluginName)
	if err != nil {
		return nil, err
	}
	conn, ok := raw.(*grpc.ClientConn)
	if !ok {
		return nil, fmt.Errorf("dispensed %T", raw)
	}
	return conn, nil
}

// configure makes a provider of the process.
func (l *launcher) configure(ctx context.Context, s *session) error {
	ctx, cancel := context.WithTimeout(ctx, l.timing.Configure)
	defer cancel()
	if err := l.describe(ctx, s); err != nil {
		return err
	}
	if err := s.provider.Configure(ctx, l.spec.Config); err != nil {
		return l.failed("to be configured", err)
	}
	return nil
}

// describe asks what the plugin is, and holds the configuration to its schema.
func (l *launcher) describe(ctx context.Context, s *session) error {
	d, err := s.provider.Describe(ctx)
	if err != nil {
		return l.failed("asked to describe itself", err)
	}
	if err := checkDescription(d); err != nil {
		return l.failed("asked to describe itself", err)
	}
	if err := checkConfig(d.ConfigSchema, l.spec.Config); err != nil {
		return l.failed("to be configured", err)
	}
	s.description = d
	return nil
}

func (l *launcher) failed(when string, err error) error {
	return fmt.Errorf("%w: provider %q, plugin %s, %s: %w", ErrLaunch, l.spec.Name, l.spec.Path, when, err)
}

// explain turns go-plugin's error into the sentence that helps. It is called
// when the process has ended or was killed.
func (l *launcher) explain(p *program.Process, err error) error {
	p.Await() // for the last words
	why := err
	if reason := l.reason(p, err); reason != "" {
		why = errors.New(reason)
	}
	return fmt.Errorf("%w: provider %q, plugin %s %w", ErrLaunch, l.spec.Name, l.spec.Path, why)
}

// reason is empty where go-plugin's error is the best there is.
func (l *launcher) reason(p *program.Process, err error) string {
	if p.PID() == 0 {
		return "" // exec failed
	}
	first, words := strings.TrimSpace(p.FirstLine()), l.output.words.String()
	fields := strings.Split(first, "|")
	switch {
	case errors.Is(err, errMute), errors.Is(err, context.Canceled):
		return ""
	case strings.HasPrefix(err.Error(), "timeout while waiting"):
		return fmt.Sprintf("said nothing for %v after its start%s", l.timing.Start, said(words))
	case first == "" && strings.Contains(words, "not meant to be executed directly"):
		return "is a plugin of another program: it waits for another magic cookie"
	case first == "":
		return fmt.Sprintf("ended before the handshake (%s)%s", p.Fate(), said(words))
	case len(fields) < 5:
		return fmt.Sprintf("wrote %.200q on standard output before the handshake: that is go-plugin's until Serve, print to standard error", first)
	case !speaks(fields[1]):
		return fmt.Sprintf("speaks version %.20s of the contract, this control plane speaks %d and %d",
			fields[1], pluginsdk.OldestContract, pluginsdk.ContractVersion)
	case fields[4] != string(plugin.ProtocolGRPC):
		return fmt.Sprintf("speaks %.20s, not %s", fields[4], plugin.ProtocolGRPC)
	case !p.WasKilled():
		return fmt.Sprintf("ended after the handshake (%s)%s", p.Fate(), said(words))
	default:
		return ""
	}
}

func speaks(version string) bool {
	v, err := strconv.Atoi(version)
	return err == nil && v >= pluginsdk.OldestContract && v <= pluginsdk.ContractVersion
}

func said(words string) string {
	if words == "" {
		return ""
	}
	return "; its last words: " + words
}
