package gitlab

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"math"
	"strconv"
	"strings"
	"time"
)

// maxNameBytes bounds the texts that are taken out of a payload [bytes]; longer ones are
// cut, since they are for people.
const maxNameBytes = 1024

// Payload is what Spillway reads of a job that GitLab handed out. The job itself is
// opaque bytes and goes to the runner as it came: nothing is ever written back from
// this. It prints itself without its token.
type Payload struct {
	ID             int64
	Token          string // of the job: a secret
	JobInfo        JobInfo
	GitInfo        GitInfo
	RunnerInfo     RunnerInfo
	FailureReasons []string // those that GitLab knows (features.failure_reasons)
	Image          string   // what the job runs in; empty: the runner decides
	Services       []string // images beside it, the first MaxServices
	MoreServices   bool     // it has more, so that it can't be judged by what is here
}

// TooManyServices is why admission refuses a job with MoreServices.
const TooManyServices = "the job has more than 64 services, which admission can't look at"

// MaxServices bounds the services that are read of a job [images].
const MaxServices = 64

// JobInfo is job_info of a payload.
type JobInfo struct {
	ID              int64
	Name            string
	Stage           string
	ProjectID       int64
	ProjectFullPath string
	NamespaceID     int64
	RootNamespaceID int64
	TimeInQueue     time.Duration
	QueueSize       int64 // jobs; of the runner's queue as GitLab saw it
	QueueDepth      int64 // jobs that were passed over before this one
}

// GitInfo is git_info of a payload.
type GitInfo struct {
	Ref       string
	Protected bool
}

// RunnerInfo is runner_info of a payload.
type RunnerInfo struct {
	Timeout time.Duration // the job's time limit
}

// Format masks the token under every verb.
func (p Payload) Format(f fmt.State, _ rune) { fmt.Fprint(f, p.masked()) }

// LogValue masks the token in logs.
func (p Payload) LogValue() slog.Value { return slog.StringValue(p.masked()) }

// MarshalJSON masks the token: a Payload is for reading.
func (p Payload) MarshalJSON() ([]byte, error) { return json.Marshal(p.masked()) }

func (p Payload) masked() string {
	return fmt.Sprintf("job %d of project %d, token [masked]", p.ID, p.JobInfo.ProjectID)
}

// wirePayload is the payload on the wire (gitlab-runner, common/spec/spec.go).
type wirePayload struct {
	ID      int64  `json:"id"`
	Token   string `json:"token"`
	JobInfo struct {
		ID              number `json:"id"`
		Name            string `json:"name"`
		Stage           string `json:"stage"`
		ProjectID       number `json:"project_id"`
		ProjectFullPath string `json:"project_full_path"`
		NamespaceID     number `json:"namespace_id"`
		RootNamespaceID number `json:"root_namespace_id"`
		TimeInQueue     number `json:"time_in_queue_seconds"`
		QueueSize       number `json:"queue_size"`
		QueueDepth      number `json:"queue_depth"`
	} `json:"job_info"`
	GitInfo struct {
		Ref       string `json:"ref"`
		Protected *bool  `json:"protected"`
	} `json:"git_info"`
	RunnerInfo struct {
		Timeout number `json:"timeout"`
	} `json:"runner_info"`
	Features struct {
		FailureReasons []string `json:"failure_reasons"`
	} `json:"features"`
	Image    wireImage   `json:"image"`
	Services []wireImage `json:"services"`
}

// wireImage is spec.Image there.
type wireImage struct {
	Name string `json:"name"`
}

// ParsePayload reads the body of a 201 of RequestJob. Its errors quote nothing of it.
func ParsePayload(body []byte) (Payload, error) {
	if len(body) > MaxPayloadBytes {
		return Payload{}, fmt.Errorf("gitlab: job payload: %w: it has %d bytes, at most %d are allowed", ErrProtocol, len(body), MaxPayloadBytes)
	}
	var w wirePayload
	if err := json.Unmarshal(body, &w); err != nil {
		return Payload{}, fmt.Errorf("gitlab: job payload: %w: it is not whole or not a job", ErrProtocol)
	}
	token, err := checkJob(w.ID, w.Token)
	if err != nil {
		return Payload{}, err
	}
	var services []string
	for _, s := range w.Services[:min(len(w.Services), MaxServices)] {
		services = append(services, cut(s.Name))
	}
	info := w.JobInfo
	return Payload{
		ID: w.ID, Token: token,
		JobInfo: JobInfo{
			ID: info.ID.int(), Name: cut(info.Name), Stage: cut(info.Stage),
			ProjectID: info.ProjectID.int(), ProjectFullPath: cut(info.ProjectFullPath),
			NamespaceID: info.NamespaceID.int(), RootNamespaceID: info.RootNamespaceID.int(),
			TimeInQueue: info.TimeInQueue.seconds(), QueueSize: info.QueueSize.int(), QueueDepth: info.QueueDepth.int(),
		},
		GitInfo:        GitInfo{Ref: cut(w.GitInfo.Ref), Protected: isTrue(w.GitInfo.Protected)},
		RunnerInfo:     RunnerInfo{Timeout: w.RunnerInfo.Timeout.seconds()},
		FailureReasons: w.Features.FailureReasons, Image: cut(w.Image.Name),
		Services: services, MoreServices: len(w.Services) > MaxServices,
	}, nil
}

// ParsePayloadHead reads from the beginning of a job, of a JobAnswer that is cut, what it
// can be failed with: its id and its token.
func ParsePayloadHead(head []byte) (Payload, error) {
	var p Payload
	HeadFields(head, map[string]any{"id": &p.ID, "token": &p.Token})
	var err error
	if p.Token, err = checkJob(p.ID, p.Token); err != nil {
		return Payload{}, err
	}
	return p, nil
}

// checkJob refuses what can't name a job, and returns its token.
func checkJob(id int64, token string) (string, error) {
	if id <= 0 {
		return "", fmt.Errorf("gitlab: job payload: %w: it has no id", ErrProtocol)
	}
	token, err := checkToken(token)
	if err != nil {
		return "", fmt.Errorf("gitlab: job payload: %w: it has no token that could be one", ErrProtocol)
	}
	return token, nil
}

func cut(s string) string {
	if len(s) > maxNameBytes {
		return strings.ToValidUTF8(s[:maxNameBytes], "")
	}
	return s
}

// number is a count or a time that is for showing: GitLab sends some as text, and one
// that makes no sense must not cost us the job. It is never negative and never NaN.
type number float64

// UnmarshalJSON takes a number or a text with one; anything else is 0.
func (n *number) UnmarshalJSON(data []byte) error {
	f, err := strconv.ParseFloat(strings.Trim(string(data), `"`), 64)
	if err != nil || !(f > 0) || math.IsInf(f, 0) {
		f = 0
	}
	*n = number(f)
	return nil
}

// maxExact is 2⁵³, the last whole number that every smaller one is exact to; ids of
// GitLab are far below.
const maxExact = 1 << 53

func (n number) int() int64 { return int64(min(float64(n), maxExact)) }

func (n number) seconds() time.Duration {
	const most = 100 * 365 * 24 * time.Hour
	return time.Duration(min(float64(n), most.Seconds()) * float64(time.Second))
}
