package migstub

import (
	"slices"
	"time"
)

// GroupConfig is one managed instance group. Its JSON names are those of files.
type GroupConfig struct {
	Name   string   `json:"name" config:"required"`
	Zone   string   `json:"zone"`   // of a zonal group, or
	Region string   `json:"region"` // of a regional one, with its
	Zones  []string `json:"zones"`  // where instances are; none = Region-b, -c and -d
	Size   int      `json:"size"`   // target size; so many run and have registered at the start
	// MaxSize is what Google allows [instances]; 0 = 1000 for a zonal and 2000 for a
	// regional group.
	MaxSize int `json:"max_size"`
	// BaseInstanceName is what instances' names begin with; "" = Name.
	BaseInstanceName string            `json:"base_instance_name"`
	Template         Template          `json:"template"`
	Labels           map[string]string `json:"labels"` // of allInstancesConfig
	// Paginated is listManagedInstancesResults: without it, listManagedInstances gives
	// everything at once and ignores maxResults and pageToken.
	Paginated     bool           `json:"paginated"`
	TargetShape   TargetShape    `json:"target_shape"`
	Autoscaler    *Autoscaler    `json:"autoscaler"`
	Autohealing   *Autohealing   `json:"autohealing"`
	StatefulDisks []string       `json:"stateful_disks"` // device names of the stateful policy
	UpdatePolicy  UpdatePolicy   `json:"update_policy"`
	Lifecycle     LifecycleRules `json:"lifecycle"`
	// Outdated: some instances are not of the version that they should be; only shown.
	Outdated bool `json:"outdated"`
	// Suspended and Stopped are the sizes of a standby pool; only shown.
	Suspended int         `json:"suspended"`
	Stopped   int         `json:"stopped"`
	Faults    GroupFaults `json:"faults"`
}

// Template is the instance template of a group.
type Template struct {
	Name        string            `json:"name"`         // "" = the group's name
	MachineType string            `json:"machine_type"` // "" = e2-standard-2
	Spot        bool              `json:"spot"`         // provisioningModel SPOT
	Preemptible bool              `json:"preemptible"`  // the older kind of spot
	Labels      map[string]string `json:"labels"`
	// OnHostMaintenance is MIGRATE or TERMINATE; "" = MIGRATE, and TERMINATE where
	// instances can be preempted.
	OnHostMaintenance string `json:"on_host_maintenance"`
}

// TargetShape is how a regional group spreads over zones.
type TargetShape string

// The shapes. EVEN and "" hold on to a zone that has no capacity.
const (
	ShapeEven          TargetShape = "EVEN"
	ShapeBalanced      TargetShape = "BALANCED"
	ShapeAny           TargetShape = "ANY"
	ShapeAnySingleZone TargetShape = "ANY_SINGLE_ZONE"
)

// Autoscaler targets a group. It is shown, and does nothing: a test that wants it
// to act uses SetSizeExternally.
type Autoscaler struct {
	Name string `json:"name"` // "" = the group's name
	Min  int    `json:"min"`
	Max  int    `json:"max" config:"required"`
	Mode string `json:"mode"` // "" = ON
	// Recommended is the size that it would give the group.
	Recommended int `json:"recommended"`
}

// Autohealing is a health check on the instances of a group.
type Autohealing struct {
	HealthCheck  string        `json:"health_check"` // name
	InitialDelay time.Duration `json:"initial_delay"`
}

// UpdatePolicy is what happens when the template changes; it is only shown.
type UpdatePolicy struct {
	Type                       string `json:"type"`                         // "" = OPPORTUNISTIC
	MinimalAction              string `json:"minimal_action"`               // "" = REPLACE
	ReplacementMethod          string `json:"replacement_method"`           // "" = SUBSTITUTE
	MostDisruptiveAllowed      string `json:"most_disruptive_allowed"`      // "" = REPLACE
	InstanceRedistributionType string `json:"instance_redistribution_type"` // regional; "" = PROACTIVE
	MaxSurge                   int    `json:"max_surge"`
	MaxUnavailable             int    `json:"max_unavailable"`
}

// LifecycleRules is the instanceLifecyclePolicy.
type LifecycleRules struct {
	DefaultActionOnFailure string `json:"default_action_on_failure"` // REPAIR (= "") or DO_NOTHING
	OnFailedHealthCheck    string `json:"on_failed_health_check"`    // DEFAULT_ACTION (= ""), REPAIR or DO_NOTHING
	ForceUpdateOnRepair    string `json:"force_update_on_repair"`    // NO (= "") or YES
}

// group is a managed instance group.
type group struct {
	GroupConfig
	id          uint64
	createdAt   time.Time
	target      int
	members     []*member // by addition
	ghosts      []*member // gone, and still listed
	launches    int       // ever
	errors      []failure // newest last, at most maxErrors
	noCapacity  map[string]time.Time
	revision    uint64 // changes with each write
	changesOpen int    // operations that have not taken effect
}

func (g *group) repairs() bool { return g.Lifecycle.DefaultActionOnFailure != "DO_NOTHING" }

// heals reports whether a failed health check makes the group recreate.
func (g *group) heals() bool {
	switch g.Lifecycle.OnFailedHealthCheck {
	case "REPAIR":
		return true
	case "DO_NOTHING":
		return false
	default: // DEFAULT_ACTION
		return g.repairs()
	}
}

func (g *group) zones() []string {
	switch {
	case g.Zone != "":
		return []string{g.Zone}
	case len(g.Zones) > 0:
		return g.Zones
	default:
		return []string{g.Region + "-b", g.Region + "-c", g.Region + "-d"}
	}
}

// AddGroup adds a group that has existed since now, with cfg.Size instances that
// run and have registered; Observe is not told of them: see Existing. It panics if
// cfg is not valid or there is such a group: that is a mistake in a program; those
// in files are named by ReadFaults.
func (c *Cloud) AddGroup(cfg GroupConfig) {
	if err := cfg.Validate(); err != nil {
		panic("migstub: " + err.Error())
	}
	c.change(func(now time.Time) {
		if c.group(cfg.Name) != nil {
			panic("migstub: two groups " + cfg.Name)
		}
		cfg.setDefaults()
		g := &group{
			GroupConfig: cfg, id: c.newID(), createdAt: now, target: cfg.Size,
			noCapacity: make(map[string]time.Time),
		}
		c.groups = append(c.groups, g)
		for range cfg.Size {
			c.settle(now, g, c.addMember(now, g))
		}
	})
}

func (cfg *GroupConfig) setDefaults() {
	for _, d := range []struct {
		field *string
		value string
	}{
		{&cfg.BaseInstanceName, cfg.Name},
		{&cfg.Template.Name, cfg.Name},
		{&cfg.Template.MachineType, "e2-standard-2"},
		{&cfg.Template.OnHostMaintenance, "MIGRATE"},
	} {
		if *d.field == "" {
			*d.field = d.value
		}
	}
	if cfg.Template.Spot || cfg.Template.Preemptible {
		cfg.Template.OnHostMaintenance = "TERMINATE" // the only possible value for them
	}
	if cfg.MaxSize == 0 {
		cfg.MaxSize = maxZonal
		if cfg.Region != "" {
			cfg.MaxSize = maxRegional
		}
	}
}

// What Google allows in one group by default [instances].
const (
	maxZonal    = 1_000
	maxRegional = 2_000
)

// group is the group of that name, or nil.
func (c *Cloud) group(name string) *group {
	i := slices.IndexFunc(c.groups, func(g *group) bool { return g.Name == name })
	if i < 0 {
		return nil
	}
	return c.groups[i]
}
