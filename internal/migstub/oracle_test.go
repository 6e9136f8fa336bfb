package migstub

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// everything is a Cloud in which every kind of field has a value.
func everything(now func() time.Time) *Cloud {
	c := New(Options{Now: now, Seed: 7})
	zonal := GroupConfig{
		Name: "linux", Zone: "europe-west1-b", Size: 2, Labels: map[string]string{"a": "b"},
		Template:    Template{Spot: true, Labels: map[string]string{"c": "d"}},
		Autoscaler:  &Autoscaler{Max: 5, Recommended: 3},
		Autohealing: &Autohealing{HealthCheck: "runner", InitialDelay: time.Minute}, StatefulDisks: []string{"data"},
		UpdatePolicy: UpdatePolicy{MaxSurge: 1}, Paginated: true,
		Faults: GroupFaults{Boot: Boot{P50: time.Minute}, Stop: time.Minute, Errors: []CreateError{{From: time.Minute, Code: QuotaExceeded}}},
	}
	c.AddGroup(zonal)
	zonal.Name, zonal.Zone, zonal.Region, zonal.TargetShape = "windows", "", "europe-west1", ShapeBalanced
	zonal.Template.Name = "windows"
	c.AddGroup(zonal)
	return c
}

// check is every way in which an answer is not what the schema says.
func (d *discovery) check(s *schema, v any, path string) (wrong []string) {
	if s.Ref != "" {
		s = d.Schemas[s.Ref]
	}
	bad := func(format string, args ...any) { wrong = append(wrong, path+": "+fmt.Sprintf(format, args...)) }
	switch x := v.(type) {
	case map[string]any:
		if s.Type != "object" {
			bad("an object, not %s", s.Type)
			return wrong
		}
		for name, value := range x {
			of := s.Properties[name]
			if of == nil {
				of = s.AdditionalProperties
			}
			if of == nil {
				bad("%s is no property", name)
				continue
			}
			wrong = append(wrong, d.check(of, value, path+"."+name)...)
		}
	case []any:
		if s.Type != "array" {
			bad("an array, not %s", s.Type)
			return wrong
		}
		for i, value := range x {
			wrong = append(wrong, d.check(s.Items, value, path+"["+strconv.Itoa(i)+"]")...)
		}
	case string:
		if s.Type != "string" {
			bad("a string, not %s", s.Type)
		}
		if len(s.Enum) > 0 && !slices.Contains(s.Enum, x) {
			bad("%q is none of %v", x, s.Enum)
		}
		if _, err := strconv.ParseUint(x, 10, 64); s.Format == "uint64" && err != nil {
			bad("%q is no uint64", x)
		}
	case bool:
		if s.Type != "boolean" {
			bad("a boolean, not %s", s.Type)
		}
	case float64:
		if s.Type != "integer" || x != math.Trunc(x) || s.Format == "int32" && math.Abs(x) > math.MaxInt32 {
			bad("%v, not %s %s", x, s.Type, s.Format)
		}
	default:
		bad("%v", v)
	}
	return wrong
}

// fill is a path with names that exist.
func (d *discovery) fill(c *Cloud, m *method) string {
	g := c.groups[0]
	if strings.Contains(m.Path, "{region}") {
		g = c.groups[1]
	}
	var op string
	for _, o := range c.operations.all {
		switch {
		case strings.HasPrefix(m.ID, "zone") && o.zone != "", strings.HasPrefix(m.ID, "region") && o.region != "":
			op = o.name
		}
	}
	path := m.Path
	for name, value := range map[string]string{
		"project": "p", "zone": "europe-west1-b", "region": "europe-west1", "instanceGroupManager": g.Name, "autoscaler": g.Name,
		"instanceTemplate": g.Name, "instanceGroup": g.Name, "instance": c.groups[0].members[0].name, "operation": op,
	} {
		path = strings.ReplaceAll(path, "{"+name+"}", value)
	}
	return basePath + path
}

func request1(t *testing.T, c *Cloud, verb, path, body string) (int, map[string]any) {
	t.Helper()
	r, err := http.NewRequestWithContext(t.Context(), verb, "http://stub"+path, strings.NewReader(body))
	require.NoError(t, err)
	resp, err := c.Transport().RoundTrip(r)
	require.NoError(t, err)
	defer func() { _ = resp.Body.Close() }()
	var answer map[string]any
	require.NoError(t, json.NewDecoder(resp.Body).Decode(&answer))
	return resp.StatusCode, answer
}

// Every answer of every method is what the discovery document says, field by
// field, in all the states that instances go through.
func TestAnswersAreOfTheirSchemas(t *testing.T) {
	d := readDiscovery(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	answered := make(map[string]bool)
	for step := range 4 {
		c := everything(func() time.Time { return now })
		prepare(c, step, &now)
		for _, m := range api.Methods {
			resource, verb, _ := strings.Cut(m.ID, ".")
			path, body := d.fill(c, m), ""
			if m.Query["size"].Required {
				path += "?size=4"
			}
			if m.Body != nil {
				g := c.groups[0]
				if strings.Contains(m.Path, "{region}") {
					g = c.groups[1]
				}
				body = `{"instances": ["` + g.members[len(g.members)-1].name + `"]}`
			}
			status, answer := request1(t, c, m.Verb, path, body)
			if resource == "globalOperations" && strings.Contains(m.Path, "{operation}") {
				require.Equal(t, http.StatusNotFound, status, "%s", m.ID) // nothing here is global
				continue
			}
			require.Equal(t, http.StatusOK, status, "%s %v", m.ID, answer)
			ref := d.Resources[resource].Methods[verb].Response.Ref
			require.Empty(t, d.check(&schema{Ref: ref}, answer, ref), "%s", m.ID)
			answered[m.ID] = true
		}
	}
	require.Len(t, answered, len(api.Methods)-2)
}

// prepare brings groups into various states.
func prepare(c *Cloud, step int, now *time.Time) {
	switch step {
	case 0:
		c.SetSizeExternally("linux", 4)
		c.SetSizeExternally("windows", 4)
		*now = now.Add(40 * time.Second)
	case 1:
		c.Preempt(c.Existing("linux")[0].ID, 0)
		c.Recreate(c.Existing("windows")[0].ID)
	case 2:
		*now = now.Add(2 * time.Minute)
		c.SetSizeExternally("linux", 4)
		c.SetSizeExternally("windows", 5)
	case 3:
		c.SetSizeExternally("linux", 1)
		c.DeleteInstanceExternally(c.Existing("windows")[0].ID)
	}
	// An operation of each place.
	for _, g := range c.groups {
		op := c.newOperation(*now, "compute.instanceGroupManagers.resize")
		op.zone, op.region, op.target = g.Zone, g.Region, c.path(g.place())
		op.errCode, op.errMessage = "QUOTA_EXCEEDED", "no"
		c.insert(*now, op)
	}
}

// The oracle must be able to fail.
func TestTheOracleSees(t *testing.T) {
	d := readDiscovery(t)
	for body, wrong := range map[string]int{
		`{"targetSize": 3, "status": {"isStable": true}, "id": "7"}`: 0,
		`{"targetSize": "3"}`: 1,
		`{"targetSize": 3.5, "targetsize": 3, "status": {"isStable": "yes"}}`:     3,
		`{"id": "x", "listManagedInstancesResults": "SOME", "versions": {"a":1}}`: 3,
		`{"name": ["a"], "targetSize": 3000000000}`:                               2,
	} {
		var v any
		require.NoError(t, json.Unmarshal([]byte(body), &v))
		require.Len(t, d.check(&schema{Ref: "InstanceGroupManager"}, v, "x"), wrong, body)
	}
}

// What the discovery document does not have is refused, and changes nothing.
func TestWhatTheAPIDoesNotHaveIsRefused(t *testing.T) {
	const group = "/compute/v1/projects/p/zones/europe-west1-b/instanceGroupManagers/linux"
	for name, r := range map[string]struct {
		verb, path, body string
		status           int
	}{
		"another API":           {"GET", "/dns/v1/projects/p", "", 404},
		"another version":       {"GET", strings.Replace(group, "v1", "beta", 1), "", 404},
		"unknown path":          {"POST", group + "/resizeAll", "", 404},
		"another verb":          {"GET", group + "/resize?size=3", "", 404},
		"no name":               {"POST", strings.TrimSuffix(group, "linux") + "/resize?size=3", "", 404},
		"another project":       {"POST", strings.Replace(group, "/p/", "/q/", 1) + "/resize?size=3", "", 404},
		"another zone":          {"POST", strings.Replace(group, "-b", "-c", 1) + "/resize?size=3", "", 404},
		"unknown parameter":     {"POST", group + "/resize?size=3&force=true", "", 400},
		"parameter of another":  {"POST", group + "/resize?size=3&maxResults=7", "", 400},
		"a size without size":   {"POST", group + "/resize", "", 400},
		"a size that is none":   {"POST", group + "/resize?size=three", "", 400},
		"a negative size":       {"POST", group + "/resize?size=-1", "", 400},
		"a size over 32 bits":   {"POST", group + "/resize?size=3000000000", "", 400},
		"a body where is none":  {"POST", group + "/resize?size=3", `{"size": 3}`, 400},
		"unknown field":         {"POST", group + "/deleteInstances", `{"instances": ["x"], "force": true}`, 400},
		"field of another type": {"POST", group + "/deleteInstances", `{"instances": "x"}`, 400},
		"no JSON":               {"POST", group + "/deleteInstances", `{`, 400},
		"no body":               {"POST", group + "/deleteInstances", ``, 400},
		"another form":          {"GET", group + "?alt=media", "", 400},
		"a part":                {"GET", group + "?fields=name", "", 400},
		"an unknown value":      {"GET", group + "?$.xgafv=3", "", 400},
		"a bad filter":          {"GET", strings.TrimSuffix(group, "/linux") + "?filter=name%20LIKE%20x", "", 400},
		"a bad order":           {"GET", strings.TrimSuffix(group, "/linux") + "?orderBy=size", "", 400},
		"a bad token":           {"GET", strings.TrimSuffix(group, "/linux") + "?pageToken=x", "", 400},
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			c := everything(func() time.Time { return now })
			status, answer := request1(t, c, r.verb, r.path, r.body)
			require.Equal(t, r.status, status, "%v", answer)
			inner, ok := answer["error"].(map[string]any)
			require.True(t, ok)
			require.EqualValues(t, r.status, inner["code"])
			require.NotEmpty(t, inner["errors"])
			view, _ := c.Group("linux")
			require.Equal(t, 2, view.Target)
			require.Equal(t, 2, view.Live)
			require.Len(t, c.Calls(), 1)
			require.Equal(t, r.status, c.Calls()[0].Status)
		})
	}
}

// Every method of the API that is not served is refused.
func TestOtherMethodsAreRefused(t *testing.T) {
	d := readDiscovery(t)
	now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := everything(func() time.Time { return now })
	refused := 0
	for resource, r := range d.Resources {
		for verb, m := range r.Methods {
			if slices.Contains(served[resource], verb) || strings.Contains(m.Path, "+") {
				continue
			}
			status, _ := request1(t, c, m.HTTPMethod, basePath+m.Path, "")
			require.Equal(t, http.StatusNotFound, status, "%s.%s", resource, verb)
			refused++
		}
	}
	require.Greater(t, refused, 500)
}

// The bodies that are read have the fields of the schemas, no fewer.
func TestBodiesAreReadWhole(t *testing.T) {
	raw, err := json.Marshal(namedRequest{})
	require.NoError(t, err)
	var fields map[string]any
	require.NoError(t, json.Unmarshal(raw, &fields))
	for _, m := range api.Methods {
		for name := range m.Body {
			require.Contains(t, fields, name, m.ID)
		}
	}
}

func TestTooLargeABody(t *testing.T) {
	c := everything(nil)
	const path = basePath + "projects/p/zones/europe-west1-b/instanceGroupManagers/linux/deleteInstances"
	body := func(size int) string {
		return `{"instances": ["x"]` + string(bytes.Repeat([]byte(" "), size-len(`{"instances": ["x"]}`))) + "}"
	}
	status, _ := request1(t, c, "POST", path, body(maxBody))
	require.Equal(t, http.StatusOK, status)
	status, _ = request1(t, c, "POST", path, body(maxBody+1))
	require.Equal(t, http.StatusBadRequest, status)
}
