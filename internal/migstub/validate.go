package migstub

import (
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"
)

var resourceName = regexp.MustCompile(`^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$`)

// checker collects mistakes.
type checker []error

func (c *checker) check(bad bool, format string, args ...any) {
	if bad {
		*c = append(*c, fmt.Errorf(format, args...))
	}
}

func (c *checker) oneOf(name, value string, allowed ...string) {
	for _, a := range allowed {
		if value == a {
			return
		}
	}
	c.check(value != "", "%s: use %s", name, strings.Join(allowed, ", "))
}

func (c *checker) durations(name string, list ...time.Duration) {
	for _, d := range list {
		c.check(d < 0 || d > MaxDuration, "%s: use 0s to %s", name, MaxDuration)
	}
}

func (c *checker) ratio(name string, r float64) { c.check(!(r >= 0 && r <= 1), "%s: use 0 to 1", name) }

// Validate reports everything that is wrong with the group, joined; nil for
// nothing.
func (cfg *GroupConfig) Validate() error { return errors.Join(cfg.mistakes()...) }

func (cfg *GroupConfig) mistakes() (c checker) {
	c.check(!resourceName.MatchString(cfg.Name), "name: use a letter, then letters, digits and -, at most 63")
	c.check((cfg.Zone == "") == (cfg.Region == ""), "zone, region: use one of them")
	c.check(cfg.Zone != "" && len(cfg.Zones) > 0, "zones: they go with region")
	for _, z := range append([]string{cfg.Zone, cfg.Region}, cfg.Zones...) {
		c.check(z != "" && !resourceName.MatchString(z), "zone, region, zones: %.70q is none", z)
	}
	c.check(cfg.Zone != "" && regionOf(cfg.Zone) == "", "zone: it is a region, - and a letter")
	limit := cfg.MaxSize
	if limit == 0 {
		limit = maxRegional
	}
	c.check(cfg.MaxSize < 0 || cfg.MaxSize > 20_000, "max_size: use 0 to 20000")
	c.check(cfg.Size < 0 || cfg.Size > limit, "size: use 0 to %d", limit)
	c.check(len(cfg.BaseInstanceName) > 58 || cfg.BaseInstanceName != "" && !resourceName.MatchString(cfg.BaseInstanceName), "base_instance_name: use at most 58 letters, digits and -")
	c.check(cfg.Template.Spot && cfg.Template.Preemptible, "template: spot or preemptible, not both")
	c.oneOf("template.on_host_maintenance", cfg.Template.OnHostMaintenance, "MIGRATE", "TERMINATE")
	c.oneOf("target_shape", string(cfg.TargetShape), "EVEN", "BALANCED", "ANY", "ANY_SINGLE_ZONE")
	c.check(cfg.TargetShape != "" && cfg.Region == "", "target_shape: it goes with region")
	c.oneOf("update_policy.type", cfg.UpdatePolicy.Type, "OPPORTUNISTIC", "PROACTIVE")
	c.oneOf("update_policy.minimal_action", cfg.UpdatePolicy.MinimalAction, "NONE", "REFRESH", "REPLACE", "RESTART")
	c.oneOf("update_policy.replacement_method", cfg.UpdatePolicy.ReplacementMethod, "RECREATE", "SUBSTITUTE")
	c.oneOf("update_policy.instance_redistribution_type", cfg.UpdatePolicy.InstanceRedistributionType, "NONE", "PROACTIVE")
	c.oneOf("lifecycle.default_action_on_failure", cfg.Lifecycle.DefaultActionOnFailure, "DO_NOTHING", "REPAIR")
	c.oneOf("update_policy.most_disruptive_allowed", cfg.UpdatePolicy.MostDisruptiveAllowed, "NONE", "REFRESH", "REPLACE", "RESTART")
	c.check(cfg.Suspended < 0 || cfg.Stopped < 0, "suspended, stopped: they must not be negative")
	c.oneOf("lifecycle.on_failed_health_check", cfg.Lifecycle.OnFailedHealthCheck, "DEFAULT_ACTION", "DO_NOTHING", "REPAIR")
	c.oneOf("lifecycle.force_update_on_repair", cfg.Lifecycle.ForceUpdateOnRepair, "NO", "YES")
	if a := cfg.Autoscaler; a != nil {
		c.check(a.Min < 0 || a.Max < a.Min, "autoscaler: min %d to max %d is no range", a.Min, a.Max)
		c.oneOf("autoscaler.mode", a.Mode, "ON", "OFF", "ONLY_SCALE_OUT", "ONLY_UP")
	}
	return append(c, cfg.Faults.mistakes()...)
}

func (f *GroupFaults) mistakes() (c checker) {
	c.durations("faults.boot", f.Boot.P50, f.Boot.P95)
	c.check(f.Boot.P95 != 0 && f.Boot.P95 < f.Boot.P50, "faults.boot: p95 %s is below p50 %s", f.Boot.P95, f.Boot.P50)
	c.check(f.Boot.P95 > 0 && f.Boot.P50 == 0, "faults.boot: p50 must be above 0s where p95 is")
	c.check(f.NeverRegister.Every < 0, "faults.never_register.every: %d is negative", f.NeverRegister.Every)
	c.check(f.Recreate.Every < 0, "faults.recreate.every: %d is negative", f.Recreate.Every)
	c.durations("faults.recreate.after", f.Recreate.After)
	c.durations("faults: retry, late_fill, list_lag, stop", f.Retry, f.LateFill, f.ListLag, f.Stop)
	c.ratio("faults.missing", f.Missing)
	c.oneOf("faults.victim", string(f.Victim), string(BusyFirst), string(Oldest), string(RandomVictim))
	c.check(len(f.Errors) > MaxWindows, "faults.errors: %d, use at most %d", len(f.Errors), MaxWindows)
	for i, e := range f.Errors {
		name := fmt.Sprintf("faults.errors[%d]", i)
		c.check(e.Code == "", "%s.code: it is missing", name)
		c.oneOf(name+".code", string(e.Code), string(QuotaExceeded), string(PoolExhausted), string(PoolDetails), string(IPSpaceExhausted), string(ResourceNotFound))
		c.durations(name, e.From, e.To)
		c.check(e.To != 0 && e.To <= e.From, "%s: from %s to %s is not a span of time", name, e.From, e.To)
		c.ratio(name+".ratio", e.Ratio)
	}
	return c
}

func (f *Faults) mistakes() (c checker) {
	c.check(!(f.ThrottlePct >= 0 && f.ThrottlePct <= 100), "throttle_pct: use 0 to 100")
	c.check(f.PageSize < 0 || f.PageSize > maxPage, "page_size: use 0 to %d", maxPage)
	c.durations("operations", f.Operations.Pending, f.Operations.Running)
	c.check(len(f.Calls) > MaxWindows, "calls: %d, use at most %d", len(f.Calls), MaxWindows)
	for i, call := range f.Calls {
		name := fmt.Sprintf("calls[%d]", i)
		c.check(!knownOn(call.On), "%s.on: %.70q is no operation of this stub", name, call.On)
		c.oneOf(name+".do", string(call.Do), string(DoError), string(DoHang), string(DoDrop), string(DoLose), string(DoGarbage), string(DoOperation))
		c.check((call.Do == DoError || call.Do == "") && call.status() == 0, "%s: reason: use a known one, or say the status", name)
		c.check(call.Do == DoOperation && call.Reason == "", "%s: reason: an operation fails with a code", name)
		c.check(call.Status != 0 && (call.Status < 400 || call.Status > 599), "%s.status: use 400 to 599", name)
		c.durations(name, call.From, call.To, call.RetryAfter)
		c.check(call.To != 0 && call.To <= call.From, "%s: from %s to %s is not a span of time", name, call.From, call.To)
		c.check(call.After < 0 || call.Times < 0, "%s: after and times must not be negative", name)
		c.ratio(name+".ratio", call.Ratio)
	}
	return c
}

// regionOf is the region of a zone: what is before its last dash.
func regionOf(zone string) string { return zone[:max(0, strings.LastIndexByte(zone, '-'))] }
