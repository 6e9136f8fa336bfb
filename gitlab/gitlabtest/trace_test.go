package gitlabtest_test

import (
	"fmt"
	"hash/crc32"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/gitlabtest"
)

func (l *lab) patch(id int64, from int, piece string) reply {
	l.t.Helper()
	return l.call("PATCH", jobPath(id)+"/trace?debug_trace=false", piece,
		"Job-Token", l.JobToken(id), "Content-Range", fmt.Sprintf("%d-%d", from, from+len(piece)-1))
}

func TestTraceRanges(t *testing.T) {
	l := newLab(t, stopped())
	id := given(t, l)
	l.put(id, "running")
	first := l.patch(id, 0, "one ")
	require.Equal(t, http.StatusAccepted, first.status)
	require.Equal(t, "0-4", first.header.Get("Range"))
	require.Equal(t, "running", first.header.Get("Job-Status"))

	for _, from := range []int{0, 3, 5} { // sent twice, overlapping, with a hole
		wrong := l.patch(id, from, "two")
		require.Equal(t, http.StatusRequestedRangeNotSatisfiable, wrong.status)
		require.Equal(t, "0-4", wrong.header.Get("Range"))
	}
	require.Equal(t, http.StatusAccepted, l.patch(id, 4, "two").status)
	require.Equal(t, "one two", l.view(id).Trace)
	require.Equal(t, http.StatusBadRequest, l.call("PATCH", jobPath(id)+"/trace", "x", "Job-Token", l.JobToken(id)).status)
	require.Equal(t, http.StatusForbidden, l.call("PATCH", jobPath(id)+"/trace", "x", "Job-Token", "no", "Content-Range", "7-7").status)
	big := l.patch(id, 7, strings.Repeat("x", gitlabtest.MaxPatchBytes))
	require.Equal(t, http.StatusAccepted, big.status)
	large := l.patch(id, 7+gitlabtest.MaxPatchBytes, strings.Repeat("x", gitlabtest.MaxPatchBytes+1))
	require.Equal(t, http.StatusRequestEntityTooLarge, large.status)
}

func TestATraceIsBounded(t *testing.T) {
	l := newLab(t, stopped())
	id := given(t, l)
	l.put(id, "running")
	piece := strings.Repeat("x", gitlabtest.MaxPatchBytes)
	for at := 0; at < gitlabtest.MaxTraceBytes; at += len(piece) {
		require.Equal(t, http.StatusAccepted, l.patch(id, at, piece).status)
	}
	require.Equal(t, http.StatusForbidden, l.patch(id, gitlabtest.MaxTraceBytes, "x").status)
	require.Equal(t, "trace_size_exceeded", l.view(id).FailureReason)
}

func TestChecksum(t *testing.T) {
	end := func(l *lab, id int64, text string) int {
		return l.call("PUT", jobPath(id), object{"token": l.JobToken(id), "state": "success", "output": object{
			"checksum": fmt.Sprintf("crc32:%08x", crc32.ChecksumIEEE([]byte(text))), "bytesize": len(text),
		}}).status
	}
	l := newLab(t, stopped())
	id := given(t, l)
	l.put(id, "running")
	l.patch(id, 0, "a log")
	require.Equal(t, http.StatusPreconditionFailed, end(l, id, "another log"))
	require.Equal(t, gitlabtest.Running, l.view(id).Status)
	require.Equal(t, http.StatusAccepted, l.patch(id, 0, "another log").status, "it has to be sent again, from the beginning")
	require.Equal(t, http.StatusOK, end(l, id, "another log"))
	require.Equal(t, gitlabtest.Success, l.view(id).Status)

	o := stopped()
	o.AcceptAnyTrace = true
	l = newLab(t, o)
	id = given(t, l)
	l.put(id, "running")
	require.Equal(t, http.StatusOK, end(l, id, "never sent"))
}

func TestARunnerGoesOnWhereGitLabIs(t *testing.T) {
	l := newLab(t, gitlabtest.Options{})
	_, token := l.AddRunner(gitlabtest.RunnerSpec{RunUntagged: true})
	// The first piece arrives, and its answer does not: 416 follows, and no line twice.
	l.Fail(gitlabtest.Fault{Route: gitlabtest.RoutePatchTrace, Times: 1, Late: true, Spoil: gitlabtest.Closed})
	l.Fail(gitlabtest.Fault{Route: gitlabtest.RouteUpdateJob, Times: 1, Status: http.StatusPreconditionFailed, Match: final})
	id := l.Enqueue(gitlabtest.JobSpec{Project: l.project, Script: []string{"for i in 1 2 3 4 5; do echo line $i; sleep 0.1; done"}})
	l.runner(token, nil)
	v, err := l.Wait(l.ctx(), id, gitlabtest.Success)
	require.NoError(t, err)
	for i := 1; i <= 5; i++ {
		require.Equal(t, 1, strings.Count(v.Trace, fmt.Sprintf("line %d\n", i)), v.Trace)
	}
	statuses := map[int]int{}
	for _, c := range append(l.CallsTo(gitlabtest.RoutePatchTrace), l.CallsTo(gitlabtest.RouteUpdateJob)...) {
		statuses[c.Status]++
	}
	require.Positive(t, statuses[http.StatusRequestedRangeNotSatisfiable])
	require.Equal(t, 1, statuses[http.StatusPreconditionFailed])
}

// final reports whether a PUT is late enough in a job's life: the trace is begun.
func final(r *http.Request) bool {
	return r.ContentLength > 0 && r.Header.Get("Job-Token") != "" && bodySays(r, `"state":"success"`)
}

func TestArtifacts(t *testing.T) {
	l := newLab(t, stopped())
	id := given(t, l)
	l.put(id, "running")
	form := "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a.zip\"\r\n\r\n0123456789\r\n--b--\r\n"
	header := []string{"Job-Token", l.JobToken(id), "Content-Type", "multipart/form-data; boundary=b"}
	require.Equal(t, http.StatusNotFound, l.call("GET", jobPath(id)+"/artifacts", nil, header...).status)
	require.Equal(t, http.StatusCreated, l.call("POST", jobPath(id)+"/artifacts", form, header...).status)
	require.EqualValues(t, 10, l.view(id).ArtifactBytes)
	require.Len(t, l.call("GET", jobPath(id)+"/artifacts", nil, header...).body, 10)
	require.Equal(t, http.StatusForbidden, l.call("GET", jobPath(id)+"/artifacts", nil, "Job-Token", "no").status)
}
