package controlplane

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/admission"
	admissions "github.com/spillway-ci/spillway/admission/session"
	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/gitlab"
	"github.com/spillway-ci/spillway/gitlab/route"
	"github.com/spillway-ci/spillway/store"
)

func payload(t *testing.T, image string) gitlab.Payload {
	t.Helper()
	p, err := gitlab.ParsePayload([]byte(`{"id": 7, "token": "glcbt-64_secret", "job_info": {"name": "build", "stage": "test", "project_id": 42,
		"project_full_path": "team/app", "namespace_id": 3, "root_namespace_id": 1}, "git_info": {"ref": "main", "protected": true},
		"runner_info": {"timeout": 600}, "image": {"name": ` + string(must(json.Marshal(image))) + `}, "services": [{"name": "postgres:16"}]}`))
	require.NoError(t, err)
	return p
}

func must(b []byte, err error) []byte {
	if err != nil {
		panic(err)
	}
	return b
}

func TestAJobOfGitLabAsControllersAreShownIt(t *testing.T) {
	p := payload(t, "ruby:3.3")
	s := gitlabSubject(&p, "https://gitlab.example.com", []string{"docker"})
	require.Equal(t, "gitlab 7", s.ID, "no pushed job can be called so")
	require.Equal(t, "ruby:3.3", s.Job.Image)
	require.Equal(t, []string{"postgres:16"}, s.Services)
	require.Equal(t, []int64{1, 3}, s.Job.Requirement.Groups)
	require.Equal(t, int64(42), s.Job.Requirement.Project)
	require.True(t, s.Job.Requirement.Protected)
	require.Equal(t, []string{"main", "team/app", "test"}, []string{s.Ref, s.Path, s.Stage})
	require.Equal(t, 10*time.Minute, s.Job.Timeout)
	shown, err := json.Marshal(s)
	require.NoError(t, err)
	require.NotContains(t, string(shown), "secret")
}

// GitLab's jobs are refused while nobody has approved them, with the controller's name.
func TestGitLabsJobsAreAskedAbout(t *testing.T) {
	s, err := store.OpenEmbedded()
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	cfg := &config.Config{Replica: "one", GitLab: &config.GitLab{URL: "https://gitlab.example.com"}, Admission: config.Admission{Controllers: []config.AdmissionController{
		{Name: "four-eyes", Scope: "group", Groups: []int64{1}, Deadline: 200 * time.Millisecond, Batch: 1},
	}}}
	c := &ControlPlane{cfg: cfg}
	c.reviewer, err = admissions.NewReviewer(s, admissions.Options{Replica: "one", Policy: cfg.AdmissionPolicy()})
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { defer close(done); _ = c.reviewer.Run(ctx) }()
	t.Cleanup(func() { cancel(); <-done })
	ok, reason := c.admitGitLab()(t.Context(), payload(t, "ruby"), route.Caller{})
	require.False(t, ok)
	require.Contains(t, reason, "admission controller four-eyes is not connected")
	require.Equal(t, admission.Group, cfg.AdmissionPolicy().Controllers()[0].Scope)
}
