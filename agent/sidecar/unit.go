package sidecar

import (
	"context"
	"fmt"
	"strings"
	"time"
)

// unit is a runner that is a service of systemd.
type unit struct {
	name      string
	systemctl string
	restart   restart
}

// shown are the properties that are asked for; see org.freedesktop.systemd1(5).
const shown = "LoadState,ActiveState,SubState,MainPID,InvocationID,Restart"

func (u *unit) show(ctx context.Context) (map[string]string, error) {
	out, err := command(ctx, u.systemctl, "show", "--property="+shown, "--", u.name)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUnknown, err)
	}
	is := map[string]string{}
	for line := range strings.Lines(string(out)) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), "="); ok {
			is[name] = value
		}
	}
	switch {
	case is["LoadState"] != "loaded":
		return nil, fmt.Errorf("%w: systemd says that the unit is %.20q", ErrUnknown, is["LoadState"])
	case is["MainPID"] == "" || is["ActiveState"] == "":
		return nil, fmt.Errorf("%w: systemctl doesn't say MainPID and ActiveState", ErrUnknown)
	}
	return is, nil
}

// look goes by the main process. The unit may be active without one (an ExecStop that
// still runs), and activating with one or without.
func (u *unit) look(ctx context.Context) (string, error) {
	is, err := u.show(ctx)
	if err != nil || is["MainPID"] == "0" {
		return "", err
	}
	return is["MainPID"] + "@" + is["InvocationID"], nil
}

// quit signals the main process only: by default systemctl kill reaches every process
// of the unit, the jobs of a shell executor among them.
func (u *unit) quit(ctx context.Context, _ string) error {
	if _, err := command(ctx, u.systemctl, "kill", "--kill-who=main", "--signal=QUIT", "--", u.name); err != nil {
		return fmt.Errorf("send SIGQUIT to the unit %s: %w", u.name, err)
	}
	return nil
}

// hold stops a unit whose process is gone. The unit that gitlab-runner installs has
// Restart=always: systemd would start it again in a moment, and it would take jobs.
func (u *unit) hold(ctx context.Context) error {
	is, err := u.show(ctx)
	if err != nil {
		return err
	}
	if is["MainPID"] != "0" || is["ActiveState"] == "inactive" || is["ActiveState"] == "failed" {
		return nil
	}
	if _, err := command(ctx, u.systemctl, "stop", "--", u.name); err != nil {
		return fmt.Errorf("keep systemd from starting the unit %s again: %w", u.name, err)
	}
	return nil
}

func (u *unit) start(ctx context.Context) error { return u.restart.run(ctx) }
func (*unit) close(time.Duration)               {}
