package controlplane

import (
	"context"
	"fmt"
	"slices"
	"strconv"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/admission"
	admissions "github.com/spillway-ci/spillway/admission/session"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/demand/collect"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/jobrouter"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/router/session"
)

// makeAdmission makes the reviewer, if somebody has to be asked about jobs.
func (c *ControlPlane) makeAdmission(context.Context) (err error) {
	policy := c.cfg.AdmissionPolicy()
	if len(policy.Controllers()) == 0 {
		return nil
	}
	c.reviewer, err = admissions.NewReviewer(c.store, admissions.Options{Replica: c.cfg.ReplicaName(), Policy: policy, Events: c.admissionEvents()})
	c.countControllers(c.cfg)
	if c.opt.Admit == nil {
		c.opt.Admit = c.admitGitLab()
	}
	return err
}

// admission is what the dispatcher asks.
func (c *ControlPlane) admission() session.Admission {
	if c.reviewer == nil {
		return nil
	}
	return c.reviewer
}

// review runs the reviewer until ctx ends.
func (c *ControlPlane) review(ctx context.Context) error {
	if err := c.reviewer.Run(ctx); ctx.Err() == nil {
		return fmt.Errorf("admission: %w", err)
	}
	return nil
}

// queue is our own queue as a source of demand: what waits for admission is apart.
func (c *ControlPlane) queue() collect.Queue {
	if c.reviewer == nil {
		return collect.Queue{Counter: c.store}
	}
	return collect.Queue{Counter: sortedQueue{c.store, c.reviewer}}
}

// reloadAdmission takes a configuration's controllers over, and the section from those
// that need a restart. The first controller needs one, since nobody is there to ask it.
func (c *ControlPlane) reloadAdmission(cfg *config.Config, restart []string) []string {
	if c.reviewer == nil {
		return restart
	}
	c.countControllers(cfg)
	c.reviewer.SetPolicy(cfg.AdmissionPolicy())
	return slices.DeleteFunc(restart, func(section string) bool { return section == "admission" })
}

func (c *ControlPlane) countControllers(cfg *config.Config) {
	for _, k := range cfg.AdmissionPolicy().Controllers() {
		c.metrics.AddController(k.Name, k.DryRun)
	}
}

func (c *ControlPlane) admissionEvents() admissions.Events {
	return admissions.Events{
		ControllerConnected: func(e admissions.ControllerConnected) {
			c.metrics.ControllerInstances(e.Controller, 1)
			c.log.Info(e.String())
		},
		ControllerDisconnected: func(e admissions.ControllerDisconnected) {
			if e.Connected {
				c.metrics.ControllerInstances(e.Controller, -1)
			}
			switch status.Code(e.Err) {
			case codes.OK, codes.Canceled, codes.Unavailable:
				c.log.Info(e.String())
			default:
				if e.Connected {
					c.metrics.ControllerRefused(e.Controller)
				}
				c.log.Warn(e.String())
			}
		},
		VerdictGiven: func(i admission.VerdictInfo) {
			c.metrics.VerdictGiven(i.Controller, i.Allow, i.DryRun, i.Took)
			if i.DryRun && !i.Allow {
				c.log.Info("a dry_run controller would have refused a job", "controller", i.Controller, "job", i.Subject, "reason", i.Reason)
			}
		},
		JobReviewed: func(e admissions.JobReviewed) {
			if e.DryRun {
				return // its verdict was told
			}
			c.metrics.JobReviewed(admissions.OutcomeName(e.Outcome))
			switch e.Outcome {
			case admission.Rejected:
				c.metrics.JobFinished(spillway.Rejected, spillway.AdmissionRejected)
				c.log.Info(e.String())
			case admission.TimedOut:
				c.metrics.JobFinished(spillway.Failed, spillway.AdmissionTimeout)
				c.log.Warn(e.String())
			default:
			}
		},
		JobUnobserved: func(e admissions.JobUnobserved) { c.metrics.JobUnobserved(e.Controller) },
		StoreTrouble: func(e admissions.StoreTrouble) {
			c.metrics.StoreFailed(e.Err)
			c.log.Warn(e.String())
		},
	}
}

// sortedQueue is the store's counts with what waits for admission apart.
type sortedQueue struct {
	counter  collect.Counter
	reviewer *admissions.Reviewer
}

func (q sortedQueue) Counts(ctx context.Context) ([]router.ClassCount, error) {
	counts, err := q.counter.Counts(ctx)
	for i := range counts {
		counts[i] = q.reviewer.Sort(counts[i])
	}
	return counts, err
}

// admitGitLab asks the same controllers about jobs of GitLab, which its payload
// describes. Of a job's groups it names two, the one that it is in and the topmost.
func (c *ControlPlane) admitGitLab() jobrouter.Admit {
	return func(ctx context.Context, job gitlab.Payload, who route.Caller) (ok bool, reason string) {
		return c.reviewer.Ask(ctx, gitlabSubject(&job, c.cfg.GitLab.URL, who.Pool.Capability.Tags))
	}
}

// gitlabSubject is a job of GitLab as controllers are shown it. A payload has no tags:
// those of the runner that is to run it are shown, which the job's are among.
func gitlabSubject(p *gitlab.Payload, origin string, tags []string) admission.Subject {
	r := spillway.Requirement{Tags: tags, Protected: p.GitInfo.Protected, Project: p.JobInfo.ProjectID, Origin: origin}
	for _, id := range []int64{p.JobInfo.NamespaceID, p.JobInfo.RootNamespaceID} {
		if id > 0 {
			r.Groups = append(r.Groups, id)
		}
	}
	number := strconv.FormatInt(p.ID, 10)
	return admission.Subject{
		ID: "gitlab " + number,
		Job: spillway.Job{
			ID: spillway.JobID(number), Name: p.JobInfo.Name, Requirement: r.Normalize(), Timeout: p.RunnerInfo.Timeout, Image: p.Image,
		},
		Services: p.Services, Ref: p.GitInfo.Ref, Path: p.JobInfo.ProjectFullPath, Stage: p.JobInfo.Stage,
	}
}
