package session

import (
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/cells"
	cellsv1 "github.com/spillway-ci/spillway/proto/spillway/cells/v1"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
)

func attempt(ref cells.Ref) *cellsv1.Attempt {
	return &cellsv1.Attempt{JobId: string(ref.ID), Attempt: int32(ref.Attempt)}
}

func attempts(refs []cells.Ref) []*cellsv1.Attempt {
	list := make([]*cellsv1.Attempt, len(refs))
	for i, ref := range refs {
		list[i] = attempt(ref)
	}
	return list
}

func refOf(id string, attempt int32) cells.Ref {
	return cells.Ref{ID: spillway.JobID(id), Attempt: int(attempt)}
}

func refsOf(list []*cellsv1.Attempt) []cells.Ref {
	refs := make([]cells.Ref, len(list))
	for i, a := range list {
		refs[i] = refOf(a.GetJobId(), a.GetAttempt())
	}
	return refs
}

// jobOf is a handed-over job as it goes into the queue of the peer. It is run once: whether
// it is tried again, its origin says.
func jobOf(p *typesv1.Job, origin string, ref cells.Ref) spillway.Job {
	job := spillway.Job{
		ID: cells.LocalID(origin, ref), Name: p.GetName(), Requirement: requirementOf(p.GetRequirement()),
		Priority: int(p.GetPriority()), Script: p.GetScript(), Env: p.GetEnv(), NoRetry: true, Image: p.GetImage(),
		Affinity: p.GetAffinity(), AntiAffinity: p.GetAntiAffinity(),
	}
	job.Requirement.Origin = spillway.CellOrigin // and so it is never handed on
	if p.GetTimeout() != nil {
		job.Timeout = p.GetTimeout().AsDuration()
	}
	return job
}

func requirementOf(p *typesv1.Requirement) spillway.Requirement {
	return spillway.Requirement{
		Tags: p.GetTags(), Protected: p.GetProtected(), Project: p.GetProject(), Groups: p.GetGroups(),
		Resources: resourcesOf(p.GetResources()),
	}.Normalize()
}

func resourcesOf(p *typesv1.Resources) spillway.Resources {
	return spillway.Resources{MilliCPU: p.GetMilliCpu(), MemoryMiB: p.GetMemoryMib(), Features: p.GetFeatures()}
}

func capabilityToProto(c spillway.Capability) *typesv1.Capability {
	return &typesv1.Capability{
		Tags: c.Tags, RunUntagged: c.RunUntagged, Protected: c.Protected, Type: string(c.Type), Groups: c.Groups, Projects: c.Projects,
		Resources: &typesv1.Resources{MilliCpu: c.Resources.MilliCPU, MemoryMib: c.Resources.MemoryMiB, Features: c.Resources.Features},
	}
}

// maxOffersBytes bounds one message of offers [bytes]: capabilities may be large. What does
// not fit is not offered.
const maxOffersBytes = 1 << 20

func offersToProto(list []cells.Offer) *cellsv1.PeerMessage {
	m := &cellsv1.Offers{}
	bytes := 0
	for i := range list {
		o := &cellsv1.Offer{
			Capability: capabilityToProto(list[i].Capability), Free: int32(list[i].Free), Growth: int32(list[i].Growth), CostPerJob: list[i].CostPerJob,
		}
		if bytes += proto.Size(o); bytes > maxOffersBytes {
			break
		}
		m.Offers = append(m.Offers, o)
	}
	return &cellsv1.PeerMessage{Message: &cellsv1.PeerMessage_Offers{Offers: m}}
}

// offersOf reads what a peer offers. What it says against the rules is left out.
func offersOf(m *cellsv1.Offers) []cells.Offer {
	var list []cells.Offer
	for _, p := range m.GetOffers()[:min(len(m.GetOffers()), cells.MaxOffers)] {
		c := p.GetCapability()
		o := cells.Offer{
			Capability: spillway.Capability{
				Tags: c.GetTags(), RunUntagged: c.GetRunUntagged(), Protected: c.GetProtected(), Type: spillway.RunnerType(c.GetType()),
				Groups: c.GetGroups(), Projects: c.GetProjects(), Resources: resourcesOf(c.GetResources()),
			}.Normalize(),
			Free: bounded(p.GetFree()), Growth: bounded(p.GetGrowth()), CostPerJob: p.GetCostPerJob(),
		}
		if o.Capability.Validate() == nil {
			list = append(list, o)
		}
	}
	return list
}

func bounded(places int32) int { return min(max(int(places), 0), cells.MaxPlaces) }

var wordOf = map[cellsv1.AttemptState]cells.Word{
	cellsv1.AttemptState_ATTEMPT_STATE_TAKEN:   cells.WordTaken,
	cellsv1.AttemptState_ATTEMPT_STATE_RUNNING: cells.WordRunning,
	cellsv1.AttemptState_ATTEMPT_STATE_ENDED:   cells.WordEnded,
	cellsv1.AttemptState_ATTEMPT_STATE_LOST:    cells.WordLost,
	cellsv1.AttemptState_ATTEMPT_STATE_REFUSED: cells.WordRefused,
}

// wordIn is what a report says; 0 when it is of a newer version.
func wordIn(m *cellsv1.Report) cells.Word {
	word := wordOf[m.GetState()]
	if word == cells.WordRefused && m.GetDenied() {
		return cells.WordDenied
	}
	return word
}

var stateOf = map[cells.Word]cellsv1.AttemptState{
	cells.WordTaken:   cellsv1.AttemptState_ATTEMPT_STATE_TAKEN,
	cells.WordRunning: cellsv1.AttemptState_ATTEMPT_STATE_RUNNING,
	cells.WordEnded:   cellsv1.AttemptState_ATTEMPT_STATE_ENDED,
	cells.WordLost:    cellsv1.AttemptState_ATTEMPT_STATE_LOST,
	cells.WordRefused: cellsv1.AttemptState_ATTEMPT_STATE_REFUSED,
	cells.WordDenied:  cellsv1.AttemptState_ATTEMPT_STATE_REFUSED, // and denied is true
}

func report(ref cells.Ref, word cells.Word, detail string) *cellsv1.Report {
	return &cellsv1.Report{
		JobId: string(ref.ID), Attempt: int32(ref.Attempt), State: stateOf[word], Detail: detail, Denied: word == cells.WordDenied,
	}
}

func resultToProto(r *spillway.JobResult) *typesv1.JobResult {
	state := typesv1.JobState_JOB_STATE_FAILED
	if r.State == spillway.Completed {
		state = typesv1.JobState_JOB_STATE_COMPLETED
	}
	return &typesv1.JobResult{State: state, Reason: string(r.Reason), Detail: r.Detail, ExitCode: int32(r.ExitCode), Output: r.Output}
}

func hello(cell, region string, epoch uint64, timing cells.Timing) *cellsv1.OriginMessage {
	return &cellsv1.OriginMessage{Message: &cellsv1.OriginMessage_Hello{Hello: &cellsv1.Hello{
		Cell: cell, Region: region, Epoch: epoch, Lease: durationpb.New(timing.Lease),
	}}}
}
