package main

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/jobfile"
	jobsv1 "github.com/spillway-ci/spillway/proto/spillway/jobs/v1"
)

// submitFlags are one job on the command line, and how to submit.
type submitFlags struct {
	id, name, script string
	tags             []string
	protected        bool
	project          int64
	priority         int
	env              []string
	timeLimit        time.Duration
	noRetry          bool
	image            string

	wait        bool
	waitTimeout time.Duration
}

func (a *app) jobsSubmitCommand() *cobra.Command {
	var f submitFlags
	cmd := &cobra.Command{
		Use:   "submit {FILE | - | --script SCRIPT}",
		Short: "Submit jobs from a file with one JSON job a line, or one job from flags",
		Long: `Submit jobs from a file (- is standard input) with one JSON object a line:

  {"id": "lint-1", "tags": ["linux"], "script": "make lint", "timeout": "10m"}

with the fields id, name, tags, protected, project, groups, resources, priority,
script, env, timeout, no_retry, max_attempts, image, affinity, anti_affinity; or one
job from flags. The jobs of a file with a mistake are not submitted. Submitting a file
again is harmless: a job that is known under its id is not run twice.

` + exitCodesHelp,
		Args: cobra.ArbitraryArgs,
		RunE: func(cmd *cobra.Command, args []string) error {
			jobs, err := a.jobsToSubmit(cmd, args, &f)
			if err != nil {
				return err
			}
			return a.with(func(c client) error { return a.submit(cmd.Context(), c, jobs, &f) })
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.script, "script", "", "what the job runs, for /bin/sh")
	flags.StringVar(&f.id, "id", "", "id of the job (default: a new one)")
	flags.StringVar(&f.name, "name", "", "name of the job")
	flags.StringSliceVar(&f.tags, "tag", nil, "tag that the job needs; may be repeated")
	flags.BoolVar(&f.protected, "protected", false, "the job is of a protected ref")
	flags.Int64Var(&f.project, "project", 0, "id of the job's project")
	flags.IntVar(&f.priority, "priority", 0, "0 (first) to 9")
	flags.StringArrayVar(&f.env, "env", nil, "variable of the job, NAME=VALUE; may be repeated")
	flags.DurationVar(&f.timeLimit, "time-limit", 0, "time limit of the job (default 1h)")
	flags.BoolVar(&f.noRetry, "no-retry", false, "never run the job twice, even when its machine is lost")
	flags.StringVar(&f.image, "image", "", "image that the job says it runs in, for admission controllers")
	flags.BoolVar(&f.wait, "wait", false, "wait until all jobs have ended; the exit code is 1 if one did not complete")
	flags.DurationVar(&f.waitTimeout, "wait-timeout", 0, "stop waiting after this; the jobs go on (default: wait for ever)")
	return cmd
}

// ofOneJob are the flags that describe a job, which a file does otherwise.
var ofOneJob = []string{"id", "name", "tag", "protected", "project", "priority", "env", "time-limit", "no-retry", "image"}

func (a *app) jobsToSubmit(cmd *cobra.Command, args []string, f *submitFlags) ([]spillway.Job, error) {
	if f.waitTimeout != 0 && (!f.wait || f.waitTimeout < 0) {
		return nil, usagef("--wait-timeout goes with --wait and is a duration above 0")
	}
	switch {
	case f.script != "" && len(args) > 0:
		return nil, usagef("a file or --script, not both")
	case f.script != "":
		return f.job()
	case len(args) != 1:
		return nil, usagef("name one file of jobs (- for standard input), or a job with --script")
	}
	for _, name := range ofOneJob {
		if cmd.Flags().Changed(name) {
			return nil, usagef("--%s describes the job of --script; in a file each job says it itself", name)
		}
	}
	return a.readJobs(args[0])
}

func (a *app) readJobs(path string) ([]spillway.Job, error) {
	name, r := "standard input", a.stdin
	if path != "-" {
		f, err := os.Open(path)
		if err != nil {
			return nil, usagef("%v", err)
		}
		defer func() { _ = f.Close() }() // read only: nothing can be lost
		name, r = path, f
	}
	jobs, err := jobfile.Parse(name, r)
	if err != nil {
		return nil, &exitError{exitUsage, err}
	}
	return jobs, nil
}

// job is the one job of the flags.
func (f *submitFlags) job() ([]spillway.Job, error) {
	job := spillway.Job{
		ID:          spillway.JobID(cmp.Or(f.id, "ctl-"+strings.ToLower(rand.Text()[:16]))),
		Name:        f.name,
		Requirement: spillway.Requirement{Tags: f.tags, Protected: f.protected, Project: f.project},
		Priority:    f.priority,
		Script:      f.script,
		Timeout:     f.timeLimit,
		NoRetry:     f.noRetry,
		Image:       f.image,
	}
	for _, pair := range f.env {
		name, value, ok := strings.Cut(pair, "=")
		if !ok {
			return nil, usagef("--env %q: write NAME=VALUE", name)
		}
		if job.Env == nil {
			job.Env = map[string]string{}
		}
		job.Env[name] = value
	}
	if err := job.Validate(); err != nil {
		return nil, &exitError{exitUsage, errors.New(strings.ReplaceAll(err.Error(), spillway.ErrInvalid.Error()+": ", ""))}
	}
	return []spillway.Job{job}, nil
}

// submit pushes the jobs and, if asked, waits for those that were accepted.
func (a *app) submit(ctx context.Context, c client, jobs []spillway.Job, f *submitFlags) error {
	acks, err := a.push(ctx, c, jobs)
	if err != nil {
		return err
	}
	s := newSubmission(acks)
	if f.wait {
		if err := a.wait(ctx, c, s, f.waitTimeout); err != nil {
			return errors.Join(s.show(a), err)
		}
	}
	if err := s.show(a); err != nil {
		return err
	}
	return s.verdict(f.wait)
}

// push sends all jobs, and returns an acknowledgement for each, in order. The
// time limit is for each acknowledgement, not for all.
func (a *app) push(ctx context.Context, c client, jobs []spillway.Job) ([]*jobsv1.PushResponse, error) {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	patience := time.AfterFunc(a.timeout, func() { cancel(context.DeadlineExceeded) })
	defer patience.Stop()
	stream, err := c.jobs.Push(ctx)
	if err != nil {
		return nil, err
	}
	var g errgroup.Group
	g.Go(func() error {
		for i := range jobs {
			if err := stream.Send(&jobsv1.PushRequest{Job: jobfile.ToProto(&jobs[i])}); err != nil {
				return nil //nolint:nilerr // the stream has ended: Recv has the reason
			}
		}
		return stream.CloseSend()
	})
	var acks []*jobsv1.PushResponse
	g.Go(func() error {
		for {
			ack, err := stream.Recv()
			if errors.Is(err, io.EOF) && len(acks) == len(jobs) {
				return nil
			}
			if err != nil {
				return cutShort(ctx, err, len(acks), len(jobs), a.timeout)
			}
			patience.Reset(a.timeout)
			acks = append(acks, ack)
		}
	})
	err = g.Wait() // before acks is read
	return acks, err
}

// cutShort says what is known of jobs whose acknowledgements did not all come.
func cutShort(ctx context.Context, err error, acks, jobs int, timeout time.Duration) error {
	switch {
	case errors.Is(context.Cause(ctx), context.DeadlineExceeded):
		err = fmt.Errorf("no answer within %s", timeout)
	case errors.Is(err, io.EOF):
		err = errors.New("the control plane ended the exchange")
	case acks == 0:
		return err
	default:
		err = errors.New(status.Convert(err).Message())
	}
	return &exitError{exitUnreachable, fmt.Errorf("%d of %d jobs were acknowledged, then: %w; submit the same again, no job will run twice", acks, jobs, err)}
}
