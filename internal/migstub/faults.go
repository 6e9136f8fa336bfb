package migstub

import (
	"fmt"
	"time"
)

// Limits of files and configurations.
const (
	// MaxDuration bounds every duration.
	MaxDuration = 366 * 24 * time.Hour
	// MaxWindows bounds the errors of a group and the faults of calls [entries].
	MaxWindows = 1_000
	// MaxGroups bounds the groups of a file [groups].
	MaxGroups = 1_000
)

// defaultRetry is how long a group waits until it tries again to create what
// failed. Google documents that it does, not when.
const defaultRetry = 30 * time.Second

// GroupFaults is how the instances of one group misbehave. The zero value is a
// cloud without a fault in which nothing takes time.
type GroupFaults struct {
	Boot          Boot          `json:"boot"` // until the instance is ready: its runner registers
	NeverRegister NeverRegister `json:"never_register"`
	Errors        []CreateError `json:"errors"`
	Retry         time.Duration `json:"retry"` // between tries to create; 0 = 30s
	// Missing is the share of each raise that gets no machine until LateFill later, or,
	// without that, ever: the managed instances stay in CREATING, and the target as it is.
	Missing  float64       `json:"missing"`
	LateFill time.Duration `json:"late_fill"`
	ListLag  time.Duration `json:"list_lag"` // lists notice additions and removals so much later
	Stop     time.Duration `json:"stop"`     // an instance that ends is listed as stopping so long
	Victim   Victim        `json:"victim"`   // of a resize down; "" = random
	Recreate Recreate      `json:"recreate"` // autohealing at work
}

// Boot is how long it takes from an instance's creation until its runner
// registers: always P50 where P95 is not larger, else log-normal with these
// quantiles.
type Boot struct {
	P50 time.Duration `json:"p50" config:"required"`
	P95 time.Duration `json:"p95"`
}

// NeverRegister picks instances whose runner never registers. Those that run from
// the start have registered: only IDs (names) can pick them, and no other can know.
type NeverRegister struct {
	Every int      `json:"every"` // each Every-th launch of the group; 0 = none
	IDs   []string `json:"ids"`   // names of instances
	All   bool     `json:"all"`
}

// Recreate is autohealing: each Every-th launched instance is recreated After it
// became ready.
type Recreate struct {
	Every int           `json:"every"`
	After time.Duration `json:"after"`
	// KeepID: whatever is recreated keeps its id and creation time too, so that only
	// its last start tells. Reports from the field have seen that.
	KeepID bool `json:"keep_id"`
}

// Victim is whom a group deletes when its size is lowered without a name.
type Victim string

// The victims.
const (
	BusyFirst    Victim = "busy_first"
	Oldest       Victim = "oldest"
	RandomVictim Victim = "random"
)

// Code is an error of a try to create an instance, as lastAttempt and listErrors
// show it.
type Code string

// The codes.
const (
	QuotaExceeded    Code = "QUOTA_EXCEEDED"
	PoolExhausted    Code = "ZONE_RESOURCE_POOL_EXHAUSTED"
	PoolDetails      Code = "ZONE_RESOURCE_POOL_EXHAUSTED_WITH_DETAILS"
	IPSpaceExhausted Code = "IP_SPACE_EXHAUSTED"
	ResourceNotFound Code = "RESOURCE_NOT_FOUND" // such as a deleted image or service account
)

func (c Code) isCapacity() bool { return c == PoolExhausted || c == PoolDetails }

// CreateError makes tries to create fail from From to before To, counted from the
// start of the Cloud.
type CreateError struct {
	From  time.Duration `json:"from"`
	To    time.Duration `json:"to"`   // 0 = for ever
	Zone  string        `json:"zone"` // "" = every zone
	Code  Code          `json:"code" config:"required"`
	Ratio float64       `json:"ratio"` // of the tries; 0 = all
}

func (e *CreateError) meets(age time.Duration, zone string) bool {
	return age >= e.From && (e.To == 0 || age < e.To) && (e.Zone == "" || e.Zone == zone)
}

// text is the message, in the words of published error reports.
func (e *CreateError) text(project, zone, region string) string {
	if region == "" {
		region = regionOf(zone)
	}
	switch e.Code {
	case QuotaExceeded:
		return fmt.Sprintf("Quota 'CPUS' exceeded.  Limit: 24.0 in region %s.", region)
	case PoolExhausted, PoolDetails:
		return fmt.Sprintf("The zone 'projects/%s/zones/%s' does not have enough resources available to fulfill the request.  Try a different zone, or try again later.", project, zone)
	case IPSpaceExhausted:
		return fmt.Sprintf("IP space of 'projects/%s/regions/%s/subnetworks/default' is exhausted.", project, region)
	default:
		return fmt.Sprintf("The resource 'projects/%s/global/images/runner' was not found", project)
	}
}

func (f *GroupFaults) retry() time.Duration {
	if f.Retry == 0 {
		return defaultRetry
	}
	return f.Retry
}

// Faults is how calls misbehave, whatever group they are about.
type Faults struct {
	Calls       []CallFault    `json:"calls"`
	ThrottlePct float64        `json:"throttle_pct"` // of all calls: 403 rateLimitExceeded
	Operations  OperationTimes `json:"operations"`
	PageSize    int            `json:"page_size"` // the most that a page of a list holds; 0 = 500
}

// OperationTimes is how long writes stay pending and running. They take effect
// when they are done, not before.
type OperationTimes struct {
	Pending time.Duration `json:"pending"`
	Running time.Duration `json:"running"`
}

// CallFault makes calls fail.
type CallFault struct {
	// On is an operation such as regionInstanceGroupManagers.resize, or the last part
	// of one for every kind of group, such as resize; "" = every call.
	On string `json:"on"`
	Do Do     `json:"do"` // "" = error
	// Reason is what the error says. With "operation" the call is accepted and its
	// operation ends with this code.
	Reason string `json:"reason"`
	Status int    `json:"status"` // HTTP; 0 = what goes with the reason
	// RetryAfter is the header, if it is not 0.
	RetryAfter time.Duration `json:"retry_after"`
	From       time.Duration `json:"from"` // counted from the start
	To         time.Duration `json:"to"`   // 0 = for ever
	After      int           `json:"after"`
	Times      int           `json:"times"` // calls that it meets after After have passed; 0 = every one
	Ratio      float64       `json:"ratio"` // of the calls; 0 = all
}

// Do is what a fault of calls does.
type Do string

// What a fault does.
const (
	DoError     Do = "error"     // an error, and nothing is done
	DoHang      Do = "hang"      // no answer until the caller gives up; nothing is done
	DoDrop      Do = "drop"      // the connection breaks; nothing is done
	DoLose      Do = "lose"      // it is done, and the answer is lost
	DoGarbage   Do = "garbage"   // the answer is not JSON; nothing is done
	DoOperation Do = "operation" // a write is accepted, and its operation fails
)

// reasons is the errors that calls can be made to fail with and the status that
// goes with each (cloud.google.com/apis/design/errors, and for the first
// compute/docs/api-rate-limits).
var reasons = map[string]int{
	"rateLimitExceeded":     403,
	"userRateLimitExceeded": 403,
	"quotaExceeded":         403,
	"forbidden":             403,
	"required":              401,
	"authError":             401,
	"notFound":              404,
	"invalid":               400,
	"resourceNotReady":      400,
	"resourceInUse":         409,
	"conditionNotMet":       412,
	"internalError":         500,
	"backendError":          503,
}

func (f *CallFault) status() int {
	if f.Status != 0 {
		return f.Status
	}
	return reasons[f.Reason]
}

func ratioOr1(r float64) float64 {
	if r == 0 {
		return 1
	}
	return r
}

// plannedFault is a fault of calls and how often it has been met.
type plannedFault struct {
	CallFault
	passed, met int
}

func plan(list []CallFault) []*plannedFault {
	planned := make([]*plannedFault, len(list))
	for i, f := range list {
		if f.Do == "" {
			f.Do = DoError
		}
		f.Ratio = ratioOr1(f.Ratio)
		planned[i] = &plannedFault{CallFault: f}
	}
	return planned
}

// faultOf is the fault that meets this call, or nil.
func (c *Cloud) faultOf(now time.Time, op string) *plannedFault {
	age := now.Sub(c.start)
	for _, f := range c.planned {
		switch {
		case !sameOp(f.On, op), age < f.From, f.To != 0 && age >= f.To, f.Times != 0 && f.met >= f.Times:
		case f.passed < f.After:
			f.passed++
		case c.chance(f.Ratio):
			f.met++
			return f
		}
	}
	return nil
}
