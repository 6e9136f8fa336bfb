package sidecar

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"net/url"
	"os/exec"
	"regexp"
	"time"
)

// ErrOptions says that an option is missing or wrong; the text names all of them.
var ErrOptions = errors.New("invalid sidecar options")

// The defaults and bounds of Options.
const (
	// DefaultMetrics is the address that gitlab-runner's documentation uses.
	DefaultMetrics = "http://127.0.0.1:9252/metrics"
	// DefaultEvery is the time between two looks. Not shorter: each costs the runner
	// something; not longer: what was seen holds for a quarter of a minute only.
	DefaultEvery = 5 * time.Second
	MinEvery     = 100 * time.Millisecond
	MaxEvery     = 10 * time.Second
	// DefaultStopGrace is the time between SIGTERM and SIGKILL for a runner that is ours
	// and has to end at once.
	DefaultStopGrace = 10 * time.Second
)

// Options say which runner is watched. Its process is found by exactly one of PIDFile,
// Unit and Exec.
type Options struct {
	Metrics string        // URL of the runner's metrics, on this machine; "": DefaultMetrics
	Every   time.Duration // between two looks; 0: DefaultEvery

	PIDFile string   // file with its process id
	Unit    string   // its systemd unit
	Exec    []string // the command line that starts it: the runner is ours then

	// Restart is a command for /bin/sh that starts the runner again once it was told to
	// stop and that is taken back; "": nothing does. One that is ours needs none. What it
	// leaves running must print elsewhere: its own output is read for a moment, and closed.
	Restart   string
	StopGrace time.Duration // 0: DefaultStopGrace

	Log *slog.Logger // nil: silent
}

var unitName = regexp.MustCompile(`^[A-Za-z0-9:_.\\@-]{1,255}$`)

func (o Options) withDefaults() (Options, error) {
	o.Metrics = cmp.Or(o.Metrics, DefaultMetrics)
	o.Every = cmp.Or(o.Every, DefaultEvery)
	o.StopGrace = cmp.Or(o.StopGrace, DefaultStopGrace)
	if o.Log == nil {
		o.Log = slog.New(slog.DiscardHandler)
	}
	return o, o.validate()
}

// validate reports every mistake.
func (o *Options) validate() error {
	var errs []error
	check := func(bad bool, format string, args ...any) {
		if bad {
			errs = append(errs, fmt.Errorf("%w: "+format, append([]any{ErrOptions}, args...)...))
		}
	}
	check(!onThisMachine(o.Metrics), "metrics %.100q: use http:// and a loopback address: this watches the runner beside it and no other", o.Metrics)
	check(o.Every < MinEvery || o.Every > MaxEvery, "looking every %s: use %s to %s", o.Every, MinEvery, MaxEvery)
	check(o.StopGrace < 0, "stop grace %s is negative", o.StopGrace)
	ways := 0
	for _, given := range []bool{o.PIDFile != "", o.Unit != "", len(o.Exec) > 0} {
		if given {
			ways++
		}
	}
	check(ways != 1, "the runner's process: name its pid file, its systemd unit, or the command that starts it, and one of them only")
	check(o.Unit != "" && (!unitName.MatchString(o.Unit) || o.Unit[0] == '-'), "unit %.60q: no name of a systemd unit", o.Unit)
	check(len(o.Exec) > 0 && o.Restart != "", "a restart command for a runner that is started here: it is started again by the same command")
	return errors.Join(errs...)
}

func onThisMachine(text string) bool {
	u, err := url.Parse(text)
	if err != nil || u.Scheme != "http" || u.User != nil || u.Fragment != "" {
		return false
	}
	if u.Hostname() == "localhost" {
		return true
	}
	ip, err := netip.ParseAddr(u.Hostname())
	return err == nil && ip.IsLoopback()
}

// process is the way to the runner that the options name.
func (o *Options) process(changed chan<- struct{}) (process, error) {
	switch {
	case o.PIDFile != "":
		return &pidFile{path: o.PIDFile, restart: restart(o.Restart)}, nil
	case o.Unit != "":
		systemctl, err := exec.LookPath("systemctl")
		if err != nil {
			return nil, fmt.Errorf("%w: unit %s: %w", ErrOptions, o.Unit, err)
		}
		return &unit{name: o.Unit, systemctl: systemctl, restart: restart(o.Restart)}, nil
	default:
		program, err := exec.LookPath(o.Exec[0])
		if err != nil {
			return nil, fmt.Errorf("%w: the command that starts the runner: %w", ErrOptions, err)
		}
		return &child{argv: append([]string{program}, o.Exec[1:]...), changed: changed}, nil
	}
}
