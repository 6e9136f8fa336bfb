package store

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

// maxStoredBytes bounds one value that is read back [bytes]. The largest valid job
// is a third of it: whatever is longer was not written by this package.
const maxStoredBytes = 1 << 20

// errContent is wrapped when stored content can't be read.
var errContent = errors.New("stored content is not readable")

// storedJob is a job as it is kept: the public part until its record is forgotten,
// all of it until it has ended.
type storedJob struct {
	id     spillway.JobID
	class  spillway.JobClass
	public string // content hash, most attempts, neverTwice or nothing, newline, typesv1.Job
	work   string // typesv1.Job, the public part first
}

// neverTwice follows the most attempts of a job that must not run twice, whoever asks:
// it is not kept in quarantine.
const neverTwice = "n"

func encodeJob(j *spillway.Job) (storedJob, error) {
	req := j.Requirement.Normalize()
	public, err := proto.Marshal(&typesv1.Job{
		Id: string(j.ID), Name: j.Name, Requirement: requirementToProto(req), Priority: int32(j.Priority),
		Timeout: durationToProto(j.Timeout), NoRetry: j.NoRetry, MaxAttempts: int32(j.MaxAttempts), Image: j.Image,
		Affinity: j.Affinity, AntiAffinity: j.AntiAffinity,
	})
	if err != nil {
		return storedJob{}, fmt.Errorf("store: encoding job %s: %w", j.ID, err)
	}
	// Messages that follow each other are read as one.
	work, err := proto.MarshalOptions{}.MarshalAppend(slices.Clip(public), &typesv1.Job{Script: j.Script, Env: j.Env})
	if err != nil {
		// The cause could quote what it could not encode.
		return storedJob{}, fmt.Errorf("store: script or env of job %s is not UTF-8", j.ID)
	}
	class := req.Class()
	head := contentHash(j, class) + " " + strconv.Itoa(j.EffectiveMaxAttempts())
	if j.NoRetry {
		head += neverTwice
	}
	head += "\n"
	return storedJob{id: j.ID, class: class, public: head + string(public), work: string(work)}, nil
}

// contentHash is 16 hex digits that differ when the contents of two jobs do. When
// a job was submitted is no part of it.
func contentHash(j *spillway.Job, class spillway.JobClass) string {
	b := make([]byte, 0, 512+len(j.Script))
	str := func(s string) {
		b = binary.AppendUvarint(b, uint64(len(s)))
		b = append(b, s...)
	}
	str(string(j.ID))
	str(j.Name)
	str(string(class))
	str(j.Script)
	b = binary.AppendUvarint(b, uint64(len(j.Env)))
	for _, k := range slices.Sorted(maps.Keys(j.Env)) {
		str(k)
		str(j.Env[k])
	}
	for _, n := range []int64{int64(j.Priority), int64(j.Timeout), int64(j.MaxAttempts)} {
		b = binary.AppendVarint(b, n)
	}
	b = strconv.AppendBool(b, j.NoRetry)
	if j.Image != "" { // not otherwise: jobs that were pushed before there were images keep their hash
		str(j.Image)
	}
	if j.Affinity != "" || j.AntiAffinity != "" { // likewise; no image begins so
		str("\x00")
		str(j.Affinity)
		str(j.AntiAffinity)
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:8])
}

// decodePublic reads a public part.
func decodePublic(public string) (spillway.Job, error) {
	_, body, ok := strings.Cut(public, "\n")
	if !ok {
		return spillway.Job{}, fmt.Errorf("%w: a job without a head", errContent)
	}
	return decodeJob(body)
}

// decodeJob reads a job, or what is public of it.
func decodeJob(body string) (spillway.Job, error) {
	if len(body) > maxStoredBytes {
		return spillway.Job{}, fmt.Errorf("%w: a job of %d bytes", errContent, len(body))
	}
	var m typesv1.Job
	if err := proto.Unmarshal([]byte(body), &m); err != nil {
		return spillway.Job{}, fmt.Errorf("%w: a job", errContent) // the cause could quote a secret
	}
	return spillway.Job{
		ID: spillway.JobID(m.GetId()), Name: m.GetName(), Requirement: requirementFromProto(m.GetRequirement()),
		Priority: int(m.GetPriority()), Script: m.GetScript(), Env: m.GetEnv(), Timeout: m.GetTimeout().AsDuration(),
		NoRetry: m.GetNoRetry(), MaxAttempts: int(m.GetMaxAttempts()), Image: m.GetImage(),
		Affinity: m.GetAffinity(), AntiAffinity: m.GetAntiAffinity(),
	}, nil
}

func encodeRequirement(r spillway.Requirement) (string, error) {
	b, err := proto.Marshal(requirementToProto(r.Normalize()))
	if err != nil {
		return "", fmt.Errorf("store: encoding a requirement: %w", err)
	}
	return string(b), nil
}

func decodeRequirement(b string) (spillway.Requirement, error) {
	var m typesv1.Requirement
	if len(b) > maxStoredBytes {
		return spillway.Requirement{}, fmt.Errorf("%w: a requirement of %d bytes", errContent, len(b))
	}
	if err := proto.Unmarshal([]byte(b), &m); err != nil {
		return spillway.Requirement{}, fmt.Errorf("%w: a requirement: %w", errContent, err)
	}
	return requirementFromProto(&m), nil
}

func requirementToProto(r spillway.Requirement) *typesv1.Requirement {
	m := &typesv1.Requirement{Tags: r.Tags, Protected: r.Protected, Project: r.Project, Groups: r.Groups, Origin: r.Origin}
	if res := r.Resources; res.MilliCPU != 0 || res.MemoryMiB != 0 || len(res.Features) > 0 {
		m.Resources = &typesv1.Resources{MilliCpu: res.MilliCPU, MemoryMib: res.MemoryMiB, Features: res.Features}
	}
	return m
}

func requirementFromProto(m *typesv1.Requirement) spillway.Requirement {
	res := m.GetResources()
	return spillway.Requirement{
		Tags: m.GetTags(), Protected: m.GetProtected(), Project: m.GetProject(), Groups: m.GetGroups(), Origin: m.GetOrigin(),
		Resources: spillway.Resources{MilliCPU: res.GetMilliCpu(), MemoryMiB: res.GetMemoryMib(), Features: res.GetFeatures()},
	}
}

func durationToProto(d time.Duration) *durationpb.Duration {
	if d == 0 {
		return nil
	}
	return durationpb.New(d)
}
