package wire

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestPropose(t *testing.T) {
	for name, c := range map[string]struct {
		plugin  plugin
		streams string
		chosen  Choices
		want    map[string]string // of the fields
	}{
		"by kind": {usual(), "", nil, map[string]string{
			InitConfig: "config", UpdateInstances: "trees", UpdateID: "id", UpdateState: "state",
			IncreaseCount: "count", IncreaseTook: "accepted", DecreaseIDs: "ids", DecreaseTook: "ids",
		}},
		"by name among several of the kind": {
			usual().but("InitRequest", "string log_level", "bytes pluginConfig"), "", nil,
			map[string]string{InitConfig: "pluginConfig"},
		},
		"within a message":          {usual().but("InitRequest", "Terms terms").but("Terms", "int32 loud", "string json"), "", nil, map[string]string{InitConfig: "terms.json"}},
		"an error and a size":       {usual().but("InitAnswer", "string error", "int32 max_size", "int32 pid"), "", nil, map[string]string{InitError: "error", InitMaxSize: "max_size"}},
		"an id and a string state":  {usual().but("Tree", "string instance_id", "string state"), "", nil, map[string]string{UpdateID: "instance_id", UpdateState: "state"}},
		"a stream of instances":     {usual().but("UpdateAnswer", "string id", "State state"), "Update", nil, map[string]string{UpdateID: "id", UpdateState: "state", UpdateInstances: ""}},
		"a stream of lists":         {usual(), "Update", nil, map[string]string{UpdateInstances: "trees", UpdateID: "id"}},
		"a list that is no list":    {usual().but("UpdateAnswer", "repeated Tree trees", "repeated Note notes").but("Note", "string text"), "", nil, map[string]string{UpdateInstances: "trees"}},
		"a person decides":          {usual().but("InitRequest", "bytes config", "string config_text"), "", Choices{InitConfig: "config_text"}, map[string]string{InitConfig: "config_text"}},
		"a person decides against":  {usual().but("DecreaseAnswer", "repeated string ids", "string error"), "", Choices{DecreaseError: ""}, map[string]string{DecreaseError: ""}},
		"a heartbeat":               {usual().but("HeartbeatRequest", "string instance").but("HeartbeatAnswer"), "", nil, map[string]string{HeartbeatID: "instance"}},
		"a message that has itself": {usual().but("InitRequest", "Terms terms").but("Terms", "Terms terms", "bytes json"), "", Choices{InitConfig: "terms.json"}, map[string]string{InitConfig: "terms.json"}},
	} {
		t.Run(name, func(t *testing.T) {
			d := c.plugin.descriptors(t, c.streams)
			got, err := Propose(d, c.chosen)
			require.NoError(t, err)
			for role, field := range c.want {
				require.Equal(t, field, got.Binding.Fields[role], role)
			}
			_, err = Resolve(d, &got.Binding)
			require.NoError(t, err, "what is proposed can be used")
		})
	}
}

// Fail closed: no binding at all, the reason, and what decides.
func TestProposeStops(t *testing.T) {
	for name, c := range map[string]struct {
		plugin    plugin
		streams   string
		chosen    Choices
		ambiguous bool
		want      string
	}{
		"two configs":            {usual().but("InitRequest", "bytes config", "string config_text"), "", nil, true, "config, config_text of p.InitRequest: choose with --set Init.config=FIELD"},
		"none has the name":      {usual().but("InitRequest", "bytes one", "string two"), "", nil, true, "--set Init.config=FIELD"},
		"no config":              {usual().but("InitRequest", "int32 size"), "", nil, false, "Init.config: no field of p.InitRequest is string or bytes"},
		"two ids":                {usual().but("Tree", "string id", "string instance_id", "State state"), "", nil, true, "--set Update.id=FIELD"},
		"two states":             {usual().but("Tree", "string id", "State state", "string state_reason"), "", nil, true, "--set Update.state=FIELD"},
		"two errors":             {usual().but("DecreaseAnswer", "repeated string ids", "string error", "string last_error"), "", nil, true, "--set Decrease.error=FIELD"},
		"two lists":              {usual().but("UpdateAnswer", "repeated Tree trees", "repeated Tree stumps"), "", nil, true, "--set Update.instances=FIELD"},
		"no list":                {usual().but("UpdateAnswer", "int32 size"), "", nil, false, "Update.instances: no field of p.UpdateAnswer is a list"},
		"no ids come back":       {usual().but("DecreaseAnswer", "int32 count"), "", nil, false, "Decrease.accepted: no field"},
		"a stream of Increase":   {usual(), "Increase", nil, false, "p.Group.Increase streams"},
		"no such field":          {usual(), "", Choices{InitConfig: "conf"}, false, `p.InitRequest has no field "conf"; it has config (bytes)`},
		"of another kind":        {usual(), "", Choices{IncreaseCount: "count", DecreaseIDs: "ids", UpdateState: "id", UpdateID: "state"}, false, "--set Update.id=state: it is enum State, not string"},
		"needed":                 {usual(), "", Choices{InitConfig: ""}, false, "--set Init.config="},
		"decides nothing":        {usual(), "", Choices{"Init.conifg": "config"}, false, `--set "Init.conifg" decides nothing here`},
		"no such service":        {usual(), "", Choices{"service": "p.Other"}, false, "there is no such service; there are p.Group"},
		"no such method":         {usual(), "", Choices{"Heartbeat": "Pulse"}, false, "p.Group has no method Heartbeat=Pulse"},
		"no fleeting plugin":     {plugin{"PingRequest": {}, "PingAnswer": {}}, "", nil, false, "no service has the methods Init, Update, Increase and Decrease; there are p.Group"},
		"an impossible state":    {usual(), "", Choices{"state.STATE_RUNNING": "well"}, false, "use creating, running"},
		"no state means running": {usual(), "", Choices{"state.STATE_RUNNING": "unknown"}, false, "no state of the plugin means running: choose with --set state.VALUE=running"},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Propose(c.plugin.descriptors(t, c.streams), c.chosen)
			require.Nil(t, got)
			require.ErrorContains(t, err, c.want)
			if c.ambiguous {
				require.ErrorIs(t, err, ErrAmbiguous)
			}
		})
	}
}

func TestStatesOfAnEnum(t *testing.T) {
	got, err := Propose(usual().descriptors(t), Choices{"state.STATE_UNSPECIFIED": "timeout"})
	require.NoError(t, err)
	require.Equal(t, map[string]State{
		"STATE_UNSPECIFIED": Timeout, "STATE_CREATING": Creating, "STATE_RUNNING": Running, "STATE_DELETING": Deleting,
	}, got.Binding.States)
}

func TestStatesOfStringsAreAssumed(t *testing.T) {
	got, err := Propose(usual().but("Tree", "string id", "string state").descriptors(t), Choices{"state.up": "running"})
	require.NoError(t, err)
	require.Equal(t, map[string]State{
		"up": Running, "creating": Creating, "running": Running, "deleting": Deleting, "deleted": Deleted, "timeout": Timeout,
	}, got.Binding.States)
	require.Contains(t, got.Lines, Bound{"state.deleting", "deleting", "", Assumed})
}

func TestWordsOf(t *testing.T) {
	for name, want := range map[string][]string{
		"instance_id": {"instance", "id"}, "InstanceID": {"instance", "id"}, "STATE_RUNNING": {"state", "running"}, "a.b_c": {"a", "b", "c"}, "": nil,
	} {
		require.Equal(t, want, wordsOf(name), name)
	}
}
