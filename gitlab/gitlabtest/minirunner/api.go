package minirunner

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	mathrand "math/rand/v2"
	"mime"
	"net/http"
	"os"
	"strconv"
	"sync/atomic"
	"time"
)

// maxTries is how often one call is made (defaultRateLimitMaxAttempts).
const maxTries = 5

// maxBodyBytes bounds an answer [bytes].
const maxBodyBytes = 16 << 20

// api is GitLab's runner API.
type api struct {
	o      Options
	client *http.Client
	tls    *tls.Config
	// lastUpdate is the version of the queue that GitLab or the router told last.
	lastUpdate atomic.Pointer[string]
}

func newAPI(o Options) (*api, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if o.CAFile != "" {
		pool, err := certificates(o.CAFile)
		if err != nil {
			return nil, err
		}
		config.RootCAs = pool
	}
	transport := &http.Transport{TLSClientConfig: config, ForceAttemptHTTP2: true, MaxIdleConnsPerHost: 10, IdleConnTimeout: time.Minute}
	return &api{o: o, client: &http.Client{Transport: transport}, tls: config}, nil
}

func certificates(file string) (*x509.CertPool, error) {
	pool, err := x509.SystemCertPool()
	if err != nil {
		pool = x509.NewCertPool()
	}
	pem, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOptions, err)
	}
	if !pool.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("%w: %s has no certificate in it", ErrOptions, file)
	}
	return pool, nil
}

func (o Options) userAgent() string {
	return "gitlab-runner " + o.Version + " (minirunner; linux/amd64)"
}

// answer is what came back of a call that was answered.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// json reports whether the answer says that it is JSON, and reads it.
func (a *answer) json(into any) error {
	kind, _, err := mime.ParseMediaType(a.header.Get("Content-Type"))
	if err != nil || kind != "application/json" {
		return fmt.Errorf("the answer is %q, not JSON", kind)
	}
	return json.Unmarshal(a.body, into)
}

// call makes a call, and again as network/retry_requester.go does. An error means
// that there was no answer.
func (a *api) call(ctx context.Context, method, path string, header http.Header, body []byte) (*answer, error) {
	wait := a.o.Times.RetryMin
	for try := 1; ; try++ {
		got, err := a.once(ctx, method, path, header, body)
		if err != nil || !again(got.status) || try == maxTries {
			return got, err
		}
		pause := serverSays(got.header)
		if pause <= 0 {
			pause = time.Duration(float64(wait) * (0.5 + mathrand.Float64()/2))
			wait = min(2*wait, a.o.Times.RetryMax)
		}
		if !sleep(ctx, pause) {
			return nil, context.Cause(ctx)
		}
	}
}

func again(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooManyRequests, http.StatusInternalServerError, http.StatusBadGateway,
		http.StatusServiceUnavailable, http.StatusGatewayTimeout:
		return true
	}
	return status >= 512
}

// serverSays is how long an answer asks to wait; 0 = it doesn't.
func serverSays(header http.Header) time.Duration {
	if at, err := time.Parse(time.RFC1123, header.Get("RateLimit-ResetTime")); err == nil {
		return time.Until(at)
	}
	seconds, err := strconv.Atoi(header.Get("Retry-After"))
	if err != nil || seconds < 0 || seconds > math.MaxInt32 {
		return 0
	}
	return time.Duration(seconds) * time.Second
}

func (a *api) once(ctx context.Context, method, path string, header http.Header, body []byte) (*answer, error) {
	request, err := http.NewRequestWithContext(ctx, method, a.o.URL+"/api/v4/"+path, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header = header.Clone()
	request.Header.Set("User-Agent", a.o.userAgent())
	request.Header.Set("X-Request-Id", newRequestID())
	response, err := a.client.Do(request)
	if err != nil {
		return nil, err
	}
	defer func() { _ = response.Body.Close() }()
	got, err := io.ReadAll(io.LimitReader(response.Body, maxBodyBytes+1))
	if err != nil {
		return nil, err
	}
	if len(got) > maxBodyBytes {
		return nil, errors.New("the answer is too large")
	}
	a.seen(response.Header.Get("X-GitLab-Last-Update"))
	return &answer{status: response.StatusCode, header: response.Header, body: got}, nil
}

func (a *api) seen(lastUpdate string) {
	if lastUpdate != "" {
		a.lastUpdate.Store(&lastUpdate)
	}
}

func newRequestID() string {
	id := make([]byte, 16)
	_, _ = rand.Read(id)
	return hex.EncodeToString(id)
}

// sleep reports whether the whole time has passed.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Bodies of calls.
type (
	info struct {
		Name         string            `json:"name,omitempty"`
		Version      string            `json:"version,omitempty"`
		Revision     string            `json:"revision,omitempty"`
		Platform     string            `json:"platform,omitempty"`
		Architecture string            `json:"architecture,omitempty"`
		Executor     string            `json:"executor,omitempty"`
		Shell        string            `json:"shell,omitempty"`
		Features     map[string]bool   `json:"features"`
		Config       map[string]string `json:"config"`
		Labels       map[string]string `json:"labels,omitempty"`
	}
	jobRequest struct {
		Info       info   `json:"info"`
		Token      string `json:"token,omitempty"`
		SystemID   string `json:"system_id,omitempty"`
		LastUpdate string `json:"last_update,omitempty"`
	}
)

// ownFeatures are the features of a shell runner that count for a job here.
var ownFeatures = []string{
	"variables", "artifacts", "cache", "upload_multiple_artifacts", "upload_raw_artifacts", "refspecs", "masking",
	"raw_variables", "multi_build_steps", "trace_reset", "trace_checksum", "trace_size", "cancelable", "cancel_gracefully",
	"return_exit_code",
}

func (o Options) info() info {
	features := map[string]bool{"two_phase_job_commit": !o.Legacy}
	for _, f := range ownFeatures {
		features[f] = true
	}
	for f, has := range o.Features {
		features[f] = has
	}
	return info{
		Name: "gitlab-runner", Version: o.Version, Revision: "minirunner", Platform: "linux", Architecture: "amd64",
		Executor: o.Executor, Shell: "bash", Features: features, Config: map[string]string{"gpus": ""}, Labels: o.Labels,
	}
}

// request is the body of a request for a job, for GitLab and for a router.
func (a *api) request() ([]byte, error) {
	request := jobRequest{Info: a.o.info(), Token: a.o.Token, SystemID: a.o.SystemID}
	if last := a.lastUpdate.Load(); last != nil {
		request.LastUpdate = *last
	}
	return json.Marshal(request)
}

func (a *api) runnerHeader() http.Header {
	return http.Header{"Runner-Token": {a.o.Token}, "Accept": {"application/json"}}
}

// requestJob asks GitLab for a job. healthy is whether the answer is one of those
// that a runner in good standing gets.
func (a *api) requestJob(ctx context.Context) (job *payload, healthy bool) {
	body, err := a.request()
	if err != nil {
		return nil, false
	}
	header := a.runnerHeader()
	header.Set("Content-Type", "application/json")
	got, err := a.call(ctx, http.MethodPost, "jobs/request", header, body)
	switch {
	case err != nil:
		a.o.Log.WarnContext(ctx, "no answer to a request for a job", "error", err)
		return nil, true
	case got.status == http.StatusCreated:
		job, err := parse(got.body)
		if err != nil || got.json(&struct{}{}) != nil {
			a.o.Log.WarnContext(ctx, "a job can't be read")
			return nil, true
		}
		return job, true
	case got.status == http.StatusForbidden:
		a.o.Log.ErrorContext(ctx, "GitLab refuses the runner token")
		return nil, false
	case got.status != http.StatusNoContent:
		a.o.Log.WarnContext(ctx, "no job", "status", got.status)
	}
	return nil, true
}

// discover asks where the router is; "" = there is none.
func (a *api) discover(ctx context.Context) string {
	got, err := a.call(ctx, http.MethodGet, "runners/router/discovery", a.runnerHeader(), nil)
	if err != nil {
		a.o.Log.WarnContext(ctx, "no answer to discovery", "error", err)
		return ""
	}
	var found struct {
		ServerURL string `json:"server_url"`
	}
	if got.status != http.StatusOK || got.json(&found) != nil {
		a.o.Log.WarnContext(ctx, "no job router", "status", got.status)
		return ""
	}
	return found.ServerURL
}
