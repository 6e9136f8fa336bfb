package gitlab

import (
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const examplePayload = `{"id":7,"token":"` + jobToken + `","allow_git_fetch":true,
"job_info":{"id":7,"name":"test","stage":"build","project_id":3,"project_name":"app","project_full_path":"top/app","namespace_id":2,"root_namespace_id":1,"time_in_queue_seconds":12.5,"queue_size":40,"queue_depth":"3"},
"git_info":{"repo_url":"https://gitlab-ci-token:x@gitlab.example.com/top/app.git","ref":"main","protected":true},
"runner_info":{"timeout":3600},"variables":[{"key":"K","value":"V"}],"steps":[{"name":"script","script":["true"]}],
"features":{"trace_sections":true,"failure_reasons":["script_failure","runner_system_failure"]}}`

func TestParsePayload(t *testing.T) {
	got, err := ParsePayload([]byte(examplePayload))
	require.NoError(t, err)
	want := Payload{
		ID: 7, Token: jobToken,
		JobInfo:    JobInfo{ID: 7, Name: "test", Stage: "build", ProjectID: 3, ProjectFullPath: "top/app", NamespaceID: 2, RootNamespaceID: 1, TimeInQueue: 12500 * time.Millisecond, QueueSize: 40, QueueDepth: 3},
		GitInfo:    GitInfo{Ref: "main", Protected: true},
		RunnerInfo: RunnerInfo{Timeout: time.Hour}, FailureReasons: []string{"script_failure", "runner_system_failure"},
	}
	require.True(t, equalPayload(want, got))
}

// equalPayload compares what a mask would hide from a failed require.Equal.
func equalPayload(a, b Payload) bool {
	return a.ID == b.ID && a.Token == b.Token && a.JobInfo == b.JobInfo && a.GitInfo == b.GitInfo && a.RunnerInfo == b.RunnerInfo && strings.Join(a.FailureReasons, " ") == strings.Join(b.FailureReasons, " ")
}

func TestParsePayloadOfTheLeast(t *testing.T) {
	p, err := ParsePayload([]byte(`{"id":7,"token":"x","job_info":{"queue_size":"many","time_in_queue_seconds":1e300,"project_id":null},"git_info":{"protected":null},"runner_info":{"timeout":-1}}`))
	require.NoError(t, err)
	require.Zero(t, p.JobInfo.QueueSize)
	require.Positive(t, p.JobInfo.TimeInQueue)
	require.Zero(t, p.RunnerInfo.Timeout)
	require.False(t, p.GitInfo.Protected)
	p, err = ParsePayload([]byte(`{"id":7,"token":"x","job_info":{"name":"` + strings.Repeat("€", 1000) + `"}}`))
	require.NoError(t, err)
	require.LessOrEqual(t, len(p.JobInfo.Name), maxNameBytes)
}

// A job is somebody's: what he writes into it makes it no answer that can't be read, which
// would slow the questions for everybody else's.
func TestParsePayloadOfManyServices(t *testing.T) {
	for _, n := range []int{0, 1, MaxServices, MaxServices + 1, 100 * MaxServices} {
		list := strings.TrimSuffix(strings.Repeat(`{"name":"postgres:16"},`, n), ",")
		p, err := ParsePayload([]byte(`{"id":7,"token":"x","services":[` + list + `]}`))
		require.NoError(t, err)
		require.Len(t, p.Services, min(n, MaxServices))
		require.Equal(t, n > MaxServices, p.MoreServices)
	}
	require.Contains(t, TooManyServices, strconv.Itoa(MaxServices))
}

func TestParsePayloadRefuses(t *testing.T) {
	secret := jobToken
	for _, body := range []string{
		"", "{}", "null", "[]", `{"id":7}`, `{"id":0,"token":"x"}`, `{"id":-1,"token":"x"}`, `{"id":"7","token":"x"}`, `{"id":7,"token":""}`, `{"id":7,"token":"a b"}`,
		`{"id":7,"token":"` + strings.Repeat("x", maxTokenBytes+1) + `"}`, `{"id":7,"token":"` + secret + `"`, `{"id":7,"token":"` + secret + `"} x`, `{"id":7,"token":{"` + secret + `":1}}`,
		strings.Repeat(" ", MaxPayloadBytes+1),
	} {
		_, err := ParsePayload([]byte(body))
		require.ErrorIs(t, err, ErrProtocol, "%.60s", body)
		require.NotContains(t, err.Error(), secret)
	}
	full := `{"id":7,"token":"x"}`
	_, err := ParsePayload([]byte(full + strings.Repeat(" ", MaxPayloadBytes-len(full))))
	require.NoError(t, err)
}

func FuzzParsePayload(f *testing.F) {
	f.Add([]byte(examplePayload))
	f.Add([]byte(`{"id":7,"token":"x","job_info":{"queue_size":"NaN","time_in_queue_seconds":"Inf"}}`))
	f.Add([]byte(`{"id":7,"token":"x","runner_info":{"timeout":1e999}}`))
	f.Fuzz(func(t *testing.T, body []byte) {
		p, err := ParsePayload(body)
		if err != nil {
			if len(err.Error()) > 200 {
				t.Fatalf("the error quotes the payload: %d bytes", len(err.Error()))
			}
			return
		}
		if p.ID <= 0 || p.Token == "" || p.JobInfo.TimeInQueue < 0 || p.JobInfo.QueueSize < 0 || p.RunnerInfo.Timeout < 0 || len(p.GitInfo.Ref) > maxNameBytes {
			t.Fatalf("accepted: %s", p)
		}
	})
}
