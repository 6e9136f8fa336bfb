package jobfile_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/jobfile"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

func parse(text string) ([]spillway.Job, error) {
	return jobfile.Parse("jobs.jsonl", strings.NewReader(text))
}

func TestParse(t *testing.T) {
	jobs, err := parse(`
{"id":"a","script":"true"}

{"id":"b","name":"B","tags":["x"],"protected":true,"project":7,"groups":[1,2],"resources":{"milli_cpu":500,"memory_mib":64,"features":["kvm"]},"priority":3,"script":"echo $K","env":{"K":"v"},"timeout":"1m30s","no_retry":true,"max_attempts":2,"affinity":"gradle","anti_affinity":"load"}
`)
	require.NoError(t, err)
	require.Equal(t, []spillway.Job{
		{ID: "a", Script: "true"},
		{
			ID: "b", Name: "B", Priority: 3, Script: "echo $K", Env: map[string]string{"K": "v"}, Timeout: 90 * time.Second, NoRetry: true, MaxAttempts: 2, Affinity: "gradle", AntiAffinity: "load",
			Requirement: spillway.Requirement{
				Tags: []string{"x"}, Protected: true, Project: 7, Groups: []int64{1, 2},
				Resources: spillway.Resources{MilliCPU: 500, MemoryMiB: 64, Features: []string{"kvm"}},
			},
		},
	}, jobs)
}

func TestToProto(t *testing.T) {
	jobs, err := parse(`{"id":"b","name":"B","tags":["x"],"protected":true,"project":7,"groups":[1,2],"resources":{"milli_cpu":500,"memory_mib":64,"features":["kvm"]},"priority":3,"script":"echo $K","env":{"K":"v"},"timeout":"1m30s","no_retry":true,"max_attempts":2,"affinity":"gradle","anti_affinity":"load"}
{"id":"a","script":"true"}`)
	require.NoError(t, err)
	want := &typesv1.Job{
		Id: "b", Name: "B", Priority: 3, Script: "echo $K", Env: map[string]string{"K": "v"}, Timeout: durationpb.New(90 * time.Second), NoRetry: true, MaxAttempts: 2, Affinity: "gradle", AntiAffinity: "load",
		Requirement: &typesv1.Requirement{
			Tags: []string{"x"}, Protected: true, Project: 7, Groups: []int64{1, 2},
			Resources: &typesv1.Resources{MilliCpu: 500, MemoryMib: 64, Features: []string{"kvm"}},
		},
	}
	require.True(t, proto.Equal(want, jobfile.ToProto(&jobs[0])))
	require.True(t, proto.Equal(&typesv1.Job{Id: "a", Script: "true", Requirement: &typesv1.Requirement{}}, jobfile.ToProto(&jobs[1])))
}

func TestEveryMistakeWithItsLine(t *testing.T) {
	_, err := parse(`{"id":"a","script":"true"}
{"id":"a","script":"true"}
{"id":"b"}
{"id":"c","script":"true","timeout":30}
{"id":"d","script":"true","timeout":"soon"}
{"id":"e","script":"true","tgas":[]}
{"id":"f","script":5}
{"id":"g","script":"true"} {"id":"h"}
{"id":"i","script":"true"
[]
{"id":"j","script":"true","priority":10,"env":{"1":"x"}}
{"id":"k","script":"true","tags":"x"}
nonsense
{"ID":"l","script":"true"}
{"id":"m","script":"true","id":"n"}
{"id":"o","script":"true","resources":{"cpu":1}}
`)
	require.ErrorIs(t, err, jobfile.ErrInvalid)
	require.Equal(t, strings.Join([]string{
		`jobs.jsonl:2: id a is the id of the job in line 1 already; each job needs its own`,
		`jobs.jsonl:3: a job needs a script`,
		`jobs.jsonl:4: timeout: write a number with its unit in quotes, such as "30s" or "1h30m"`,
		`jobs.jsonl:5: timeout: "soon" is not a duration; write a number with its unit, such as "30s" or "1h30m"`,
		`jobs.jsonl:6: unknown field "tgas"; a job has id, name, tags, protected, project, groups, resources, priority, script, env, timeout, no_retry, max_attempts, image, affinity, anti_affinity`,
		`jobs.jsonl:7: script: must be text, not number`,
		`jobs.jsonl:8: more than one JSON value; write one job a line`,
		`jobs.jsonl:9: not JSON: the line ends within the job; write each job on one line`,
		`jobs.jsonl:10: must be a JSON object, not array`,
		`jobs.jsonl:11: environment variable name "1": use letters, digits and _`,
		`jobs.jsonl:11: priority 10: use 0 (first) to 9`,
		`jobs.jsonl:12: tags: must be a list, not string`,
		`jobs.jsonl:13: not JSON: invalid character 'o' in literal null (expecting 'u')`,
		`jobs.jsonl:14: unknown field "ID"; a job has id, name, tags, protected, project, groups, resources, priority, script, env, timeout, no_retry, max_attempts, image, affinity, anti_affinity`,
		`jobs.jsonl:15: field id is there twice; keep one of them`,
		`jobs.jsonl:16: unknown field "cpu"`,
	}, "\n"), err.Error())
}

func TestEmptyFile(t *testing.T) {
	_, err := parse("\n\n")
	require.ErrorIs(t, err, jobfile.ErrInvalid)
	require.ErrorContains(t, err, "there is no job in it")
}

func TestLimits(t *testing.T) {
	_, err := parse(strings.Repeat("x\n", jobfile.MaxMistakes+3))
	require.ErrorContains(t, err, "and 3 more")
	require.Len(t, strings.Split(err.Error(), "\n"), jobfile.MaxMistakes+1)

	largest := fmt.Sprintf(`{"id":"a","script":%q}`, strings.Repeat("\"", spillway.MaxScriptBytes))
	_, err = parse(largest)
	require.NoError(t, err, "the largest script fits a line")
	_, err = parse("{}\n" + strings.Repeat("x", jobfile.MaxLineBytes+1))
	require.ErrorContains(t, err, "jobs.jsonl:2: the line has more than")

	var b strings.Builder
	for i := range jobfile.MaxJobs {
		fmt.Fprintf(&b, "{\"id\":\"%d\",\"script\":\"x\"}\n", i)
	}
	jobs, err := parse(b.String())
	require.NoError(t, err)
	require.Len(t, jobs, jobfile.MaxJobs)
	_, err = parse(b.String() + `{"id":"one-more","script":"x"}`)
	require.ErrorContains(t, err, "more than 100000 jobs")
}

func TestReaderFails(t *testing.T) {
	broken := errors.New("disk")
	_, err := jobfile.Parse("f", iotest.ErrReader(broken))
	require.ErrorIs(t, err, broken)
	require.NotErrorIs(t, err, jobfile.ErrInvalid)
}

func FuzzParse(f *testing.F) {
	f.Add(`{"id":"a","script":"true","timeout":"1s","env":{"K":"v"}}`)
	f.Add("{}\n[]\nx\n")
	f.Fuzz(func(t *testing.T, text string) {
		jobs, err := parse(text)
		if err != nil {
			require.ErrorIs(t, err, jobfile.ErrInvalid)
			require.Empty(t, jobs)
			return
		}
		require.NotEmpty(t, jobs)
		seen := map[spillway.JobID]bool{}
		for _, j := range jobs {
			require.NoError(t, j.Validate())
			require.False(t, seen[j.ID])
			seen[j.ID] = true
		}
	})
}
