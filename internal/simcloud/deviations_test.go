package simcloud_test

// asgDeviations are where Auto Scaling groups rightly go another way.
var asgDeviations = map[string]deviation{
	"c27-busy-instance-is-replaced": {differ: map[string]string{
		"pool.linux.desired.at(202s) == 2": "a group replaces what it loses, and its number stays",
	}},
	"c27-idle-instance-ended": {differ: map[string]string{
		"pool.linux.launches <= 2": "a group replaces all three that it loses, needed or not",
	}},
	"c28-spillover-by-call":                       {skip: "no call fails for a lack of capacity: c28-spillover-by-activity is the same by activities"},
	"spillover-cooled-off-pool-is-not-waited-for": {skip: "no call fails for a lack of capacity"},
	"unhealthy-instances-are-replaced": {differ: map[string]string{
		"pool.linux.launches == 1":            "a group replaces at once what is found unhealthy, and whatever runs on it",
		"pool.linux.in_service.at(320s) == 2": "the replacement serves too",
		"forced_kills == 0":                   "the job on the unhealthy instance is lost with it",
	}},
	"x05-observe-throttled":             {skip: "the Auto Scaling API does not say when to ask again"},
	"x05-throttled-for-long-cools-off":  {skip: "the Auto Scaling API does not say when to ask again"},
	"x05-throttled-is-waited-for":       {skip: "the Auto Scaling API does not say when to ask again"},
	"x09-no-capacity-below-the-minimum": {skip: "no call fails for a lack of capacity: TestX09 is the same by activities"},
}

// migDeviations are where managed instance groups rightly go another way.
var migDeviations = map[string]deviation{
	"c12a-observe-signal-error":   {skip: "a managed instance group has no lifecycle hooks"},
	"c12b-observe-signal-timeout": {skip: "a managed instance group has no lifecycle hooks"},
	"c12c-observe-signal-empty":   {skip: "a managed instance group has no lifecycle hooks"},
	"c12d-observe-signal-stale":   {skip: "a managed instance group has no lifecycle hooks"},
	"c12e-observe-honest-zero":    {skip: "a managed instance group has no lifecycle hooks"},
	"c25-one-decrement-each":      {skip: "a managed instance group has no minimum"},
	"c27-busy-instance-is-replaced": {differ: map[string]string{
		"pool.linux.desired.at(202s) == 2": "a group recreates what it loses, and its number stays",
	}},
	"c27-idle-instance-ended": {differ: map[string]string{
		"pool.linux.launches <= 2": "a group recreates all three that it loses, needed or not",
	}},
	"spillover-cooled-off-pool-is-not-waited-for": {skip: "no resize fails for a lack of capacity"},

	"c28-spillover-by-call":    {skip: "no resize fails for a lack of capacity: c28-spillover-by-activity is the same by instances that are not created"},
	"c31-group-max-below-ours": {skip: "a managed instance group has no maximum of its own"},
	"c33-desired-reset-by-somebody": {differ: map[string]string{
		"pool.linux.desired.at(106s) == 8": "nothing protects instances from a smaller size: six are gone, and their jobs wait again when their machines are given up",
		"pool.linux.launches == 0":         "six are launched again for the jobs of those that are gone",
		"forced_kills == 0":                "six of eight end with the smaller size, whatever runs on them",
	}},
	"c34-launching-hook":         {skip: "a managed instance group has no lifecycle hooks"},
	"c34-terminating-hook-waits": {skip: "a managed instance group has no lifecycle hooks"},
	"group-halt-launch":          {skip: "a managed instance group has no processes that could be suspended"},
	"group-halt-removal":         {skip: "a managed instance group has no processes that could be suspended"},
	"unhealthy-instances-are-replaced": {differ: map[string]string{
		"pool.linux.launches == 1":            "a group recreates at once what autohealing finds broken, and whatever runs on it",
		"pool.linux.in_service.at(320s) == 2": "what was recreated serves too",
		"forced_kills == 0":                   "the job on the broken instance is lost with it",
	}},
	"x09-no-capacity-below-the-minimum": {skip: "no resize fails for a lack of capacity, and a managed instance group has no minimum"},
}
