package wire

import "slices"

// Methods are what a fleeting plugin does, under the names of the fleeting library's
// Go interface.
const (
	Init      = "Init"
	Update    = "Update"
	Increase  = "Increase"
	Decrease  = "Decrease"
	Heartbeat = "Heartbeat"
	Shutdown  = "Shutdown"
)

// method is one of them.
type method struct {
	name   string
	need   bool // without it nothing can be driven
	stream bool // its answers may come as a stream
}

var methods = []method{
	{name: Init, need: true},
	{name: Update, need: true, stream: true},
	{name: Increase, need: true},
	{name: Decrease, need: true},
	{name: Heartbeat},
	{name: Shutdown},
}

// The roles of fields, as they are named in a profile and with --set.
const (
	InitConfig      = "Init.config"
	InitMaxSize     = "Init.max_size"
	InitError       = "Init.error"
	UpdateInstances = "Update.instances"
	UpdateID        = "Update.id"
	UpdateState     = "Update.state"
	UpdateError     = "Update.error"
	IncreaseCount   = "Increase.count"
	IncreaseTook    = "Increase.accepted"
	IncreaseError   = "Increase.error"
	DecreaseIDs     = "Decrease.ids"
	DecreaseTook    = "Decrease.accepted"
	DecreaseError   = "Decrease.error"
	HeartbeatID     = "Heartbeat.id"
	HeartbeatError  = "Heartbeat.error"
)

// side is where a role's field is.
type side int

const (
	inRequest side = iota
	inAnswer
	inInstance // of the elements of Update.instances, or of the answer where that is unbound
)

// role is something that a field can be for.
type role struct {
	name   string // such as Init.config
	method string
	side   side
	kinds  []kind
	need   bool
	// words: where several fields are of the kind, the only one with one of these words
	// in its name is meant. A role that isn't needed takes no field without them.
	words []string
	what  string // for people
}

// roles in the order in which they are bound.
var roles = []role{
	{InitConfig, Init, inRequest, []kind{text, octets, structure}, true, []string{"config", "settings"}, "plugin_config as JSON"},
	{InitMaxSize, Init, inAnswer, []kind{integer}, false, []string{"max"}, "the largest size of the group"},
	{InitError, Init, inAnswer, []kind{text}, false, []string{"error", "err"}, "an error within the answer"},
	{UpdateInstances, Update, inAnswer, []kind{list}, false, []string{"instances"}, "the list of instances"},
	{UpdateID, Update, inInstance, []kind{text}, true, []string{"id"}, "an instance's id"},
	{UpdateState, Update, inInstance, []kind{enumeration, text}, true, []string{"state"}, "an instance's state"},
	{UpdateError, Update, inAnswer, []kind{text}, false, []string{"error", "err"}, "an error within the answer"},
	{IncreaseCount, Increase, inRequest, []kind{integer}, true, []string{"count", "n"}, "how many instances more"},
	{IncreaseTook, Increase, inAnswer, []kind{integer}, true, []string{"accepted", "count", "n"}, "how many of them it will make"},
	{IncreaseError, Increase, inAnswer, []kind{text}, false, []string{"error", "err"}, "an error within the answer"},
	{DecreaseIDs, Decrease, inRequest, []kind{texts}, true, []string{"ids", "instances"}, "the instances to end"},
	{DecreaseTook, Decrease, inAnswer, []kind{texts}, true, []string{"accepted", "ids", "instances"}, "those that it will end"},
	{DecreaseError, Decrease, inAnswer, []kind{text}, false, []string{"error", "err"}, "an error within the answer"},
	{HeartbeatID, Heartbeat, inRequest, []kind{text}, true, []string{"id"}, "the instance"},
	{HeartbeatError, Heartbeat, inAnswer, []kind{text}, false, []string{"error", "err"}, "an error within the answer"},
}

func roleNamed(name string) (role, bool) {
	i := slices.IndexFunc(roles, func(r role) bool { return r.name == name })
	if i < 0 {
		return role{}, false
	}
	return roles[i], true
}

func roleNames() []string {
	names := make([]string, len(roles))
	for i, r := range roles {
		names[i] = r.name
	}
	return names
}

func methodNames() []string {
	names := make([]string, len(methods))
	for i, m := range methods {
		names[i] = m.name
	}
	return names
}
