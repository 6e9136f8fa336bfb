package play

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/config"
	adminv1 "github.com/spillway-ci/spillway/proto/spillway/admin/v1"
)

// Stage is everything that runs while an example is played.
type Stage struct {
	GitLab *GitLab
	Config *config.Config

	out    io.Writer
	folder string // of the example
	top    string // of the sources
	dir    string // private, removed at the end
	plane  *process
	admin  adminv1.AdminServiceClient
	ends   []func() error // in the order of the beginnings
}

// open sets up everything but the control plane. A stage that comes with an error is to
// be closed, too.
func open(name string, out io.Writer) (s *Stage, err error) {
	s = &Stage{out: out, folder: filepath.Join("examples", name)}
	if s.top, err = os.Getwd(); err != nil {
		return nil, err
	}
	for _, needed := range []string{s.folder, "bin/controlplane"} {
		if _, err := os.Stat(needed); err != nil {
			return nil, fmt.Errorf("%w: `make example-%s` in the top folder of the sources builds and starts it", err, name)
		}
	}
	if s.dir, err = os.MkdirTemp("", "spillway-"+name+"-"); err != nil {
		return nil, err
	}
	s.ends = append(s.ends, func() error { return os.RemoveAll(s.dir) })
	return s, s.set()
}

// set reads the configuration and starts the GitLab that it names.
func (s *Stage) set() error {
	path, err := s.Fill("spillway.yaml")
	if err != nil {
		return err
	}
	if s.Config, err = config.Load(path); err != nil {
		return err
	}
	if s.GitLab, err = newGitLab(s.Config); err != nil {
		return err
	}
	s.ends = append(s.ends, s.GitLab.close)
	for name, secret := range s.GitLab.secrets {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(secret), 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Fill copies a file of the example, with whole paths in place of $TOP, the sources'
// folder, and $DIR, the private one. It returns the copy's path.
func (s *Stage) Fill(name string) (path string, err error) {
	text, err := os.ReadFile(filepath.Join(s.folder, name))
	if err != nil {
		return "", err
	}
	path = filepath.Join(s.dir, name)
	return path, os.WriteFile(path, []byte(strings.NewReplacer("$TOP", s.top, "$DIR", s.dir).Replace(string(text))), 0o600)
}

// Start runs a program until the end of the example, and returns when a page of it has
// a text in it.
func (s *Stage) Start(ctx context.Context, name string, cmd *exec.Cmd, page, text string) error {
	p, err := s.start(name, cmd)
	if err != nil {
		return err
	}
	return p.until(ctx, func(ctx context.Context) error { return answers(ctx, page, text) })
}

func (s *Stage) start(name string, cmd *exec.Cmd) (*process, error) {
	p, err := start(s.dir, name, cmd)
	if err == nil {
		s.ends = append(s.ends, p.stop)
	}
	return p, err
}

// Dir is a directory for the example's files, removed at its end.
func (s *Stage) Dir() string { return s.dir }

// Say prints a line.
func (s *Stage) Say(format string, args ...any) { _, _ = fmt.Fprintf(s.out, format+"\n", args...) }

// serve starts the control plane.
func (s *Stage) serve(ctx context.Context) (err error) {
	path := filepath.Join(s.dir, "spillway.yaml")
	if s.plane, err = s.start("controlplane", exec.Command(filepath.Join(s.top, "bin", "controlplane"), "serve", "--config", path)); err != nil {
		return err
	}
	if err := s.plane.until(ctx, s.plane.says("msg=serving")); err != nil { // its port may be another one's
		return err
	}
	conn, err := grpc.NewClient("passthrough:///"+s.Config.Listen.API, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	s.ends = append(s.ends, conn.Close)
	s.admin = adminv1.NewAdminServiceClient(conn)
	s.Say("control plane   configured by %s, log in %s", path, s.plane.log)
	return nil
}

// close ends everything, the last beginning first.
func (s *Stage) close() (err error) {
	for i := len(s.ends) - 1; i >= 0; i-- {
		err = errors.Join(err, s.ends[i]())
	}
	return err
}

// Address is the host and port of a URL of the configuration.
func Address(of string) (string, error) {
	u, err := url.Parse(of)
	if err != nil {
		return "", err
	}
	return u.Host, nil
}
