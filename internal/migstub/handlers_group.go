package migstub

import (
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// maxNamed is how many instances one request may name (deleteInstances).
const maxNamed = 1_000

var groupHandlers = map[string]handler{
	"get":                  getGroup,
	"list":                 listGroups,
	"aggregatedList":       aggregateGroups,
	"resize":               resizeGroup,
	"listManagedInstances": listManaged,
	"listErrors":           listErrors,
	"deleteInstances":      named("compute.instanceGroupManagers.deleteInstances", deleteNamed),
	"abandonInstances":     named("compute.instanceGroupManagers.abandonInstances", abandonNamed),
	"recreateInstances":    named("compute.instanceGroupManagers.recreateInstances", recreateNamed),
}

// groupOf is the group that a path names, by name or id.
func (c *Cloud) groupOf(r *request) (*group, *apiError) {
	name := r.names["instanceGroupManager"]
	for _, g := range c.groups {
		if r.here(g.Zone, g.Region) && (g.Name == name || idText(g.id) == name) {
			return g, nil
		}
	}
	return nil, notFound(c.path(place(r.names["zone"], r.names["region"]) + "/instanceGroupManagers/" + name))
}

func getGroup(c *Cloud, r *request) (any, *apiError) {
	g, err := c.groupOf(r)
	if err != nil {
		return nil, err
	}
	return c.renderGroup(r.now, g), nil
}

func (c *Cloud) groupResources(now time.Time, in func(*group) bool) (all []groupResource) {
	for _, g := range c.groups {
		if in(g) {
			all = append(all, c.renderGroup(now, g))
		}
	}
	return all
}

func listGroups(c *Cloud, r *request) (any, *apiError) {
	kind := "compute#instanceGroupManagerList"
	if r.names["region"] != "" {
		kind = "compute#regionInstanceGroupManagerList"
	}
	all := c.groupResources(r.now, func(g *group) bool { return r.here(g.Zone, g.Region) })
	return listOf(c, r, kind, "instanceGroupManagers", all)
}

func aggregateGroups(c *Cloud, r *request) (any, *apiError) {
	return aggregate(c, r, "compute#instanceGroupManagerAggregatedList", "instanceGroupManagers",
		c.groupResources(r.now, func(*group) bool { return true }),
		func(g groupResource) string { return placeIn(g.Zone, g.Region) })
}

// getInstanceGroup is the instance group that belongs to a managed one.
func getInstanceGroup(c *Cloud, r *request) (any, *apiError) {
	for _, g := range c.groups {
		if r.here(g.Zone, g.Region) && g.Name == r.names["instanceGroup"] {
			return c.renderInstanceGroup(r.now, g), nil
		}
	}
	return nil, notFound(c.path(place(r.names["zone"], r.names["region"]) + "/instanceGroups/" + r.names["instanceGroup"]))
}

func listInstanceGroups(c *Cloud, r *request) (any, *apiError) {
	var all []instanceGroupResource
	for _, g := range c.groups {
		if r.here(g.Zone, g.Region) {
			all = append(all, c.renderInstanceGroup(r.now, g))
		}
	}
	kind := "compute#instanceGroupList"
	if r.names["region"] != "" {
		kind = "compute#regionInstanceGroupList"
	}
	return listOf(c, r, kind, "instanceGroups", all)
}

// groupOperation is a write to a group. It takes effect when it is done.
func (c *Cloud) groupOperation(r *request, g *group, kind string, apply func(at time.Time) error) any {
	op := c.newOperation(r.now, kind)
	op.zone, op.region, op.group, op.apply = g.Zone, g.Region, g, apply
	op.target, op.targetID = c.path(g.place()+"/instanceGroupManagers/"+g.Name), g.id
	return c.accept(r, op)
}

// resizeGroup is resize. An autoscaler does not keep anybody from it.
func resizeGroup(c *Cloud, r *request) (any, *apiError) {
	g, err := c.groupOf(r)
	if err != nil {
		return nil, err
	}
	size, bad := strconv.Atoi(r.query.Get("size"))
	if bad != nil || size < 0 || size > g.MaxSize {
		return nil, invalid("Invalid value for field 'size': '%.20s'. Must be between 0 and %d.", r.query.Get("size"), g.MaxSize)
	}
	return c.groupOperation(r, g, "compute.instanceGroupManagers.resize", func(at time.Time) error {
		c.resize(at, g, size, ByScaleIn)
		return nil
	}), nil
}

// listManaged is listManagedInstances. Only groups that say so have pages of it;
// the order cannot be chosen.
func listManaged(c *Cloud, r *request) (any, *apiError) {
	g, err := c.groupOf(r)
	if err != nil {
		return nil, err
	}
	if r.query.Get("orderBy") != "" {
		return nil, invalid("Invalid value for field 'orderBy': listManagedInstances does not support it.")
	}
	all := []managedResource{}
	for _, m := range g.listed(r.now) {
		all = append(all, c.renderMember(r.now, g, m))
	}
	if all, err = filtered(all, r.query.Get("filter")); err != nil {
		return nil, err
	}
	if !g.Paginated {
		return managedList{ManagedInstances: all}, nil
	}
	items, next, err := cut(c, r, all)
	if err != nil {
		return nil, err
	}
	return managedList{items, next}, nil
}

// listed is the members that a list shows: it notices additions and removals late.
func (g *group) listed(now time.Time) (list []*member) {
	lag := g.Faults.ListLag
	g.ghosts = g.noticed(now)
	for _, m := range slices.Concat(g.ghosts, g.members) {
		if !now.Before(m.addedAt.Add(lag)) {
			list = append(list, m)
		}
	}
	return list
}

// noticed is the ghosts without those whose removal lists have noticed.
func (g *group) noticed(now time.Time) []*member {
	return slices.DeleteFunc(g.ghosts, func(m *member) bool { return !now.Before(m.goneAt.Add(g.Faults.ListLag)) })
}

// listErrors shows the oldest first; it has no filter and no order.
func listErrors(c *Cloud, r *request) (any, *apiError) {
	g, err := c.groupOf(r)
	if err != nil {
		return nil, err
	}
	all := []managedError{}
	for _, f := range g.errors {
		all = append(all, c.renderFailure(g, f))
	}
	items, next, err := cut(c, r, all)
	if err != nil {
		return nil, err
	}
	return errorList{items, next}, nil
}

// namedRequest is the body of the requests that name instances.
type namedRequest struct {
	Instances []string `json:"instances"`
	// SkipInstancesOnValidationError: see deleteInstances.
	SkipInstancesOnValidationError bool `json:"skipInstancesOnValidationError"`
}

// named is the handler of a write to the instances that a request names. It is
// all or nothing unless the request says that wrong names are skipped.
func named(kind string, act func(c *Cloud, at time.Time, g *group, m *member)) handler {
	return func(c *Cloud, r *request) (any, *apiError) {
		g, err := c.groupOf(r)
		if err != nil {
			return nil, err
		}
		var body namedRequest
		if bad := json.Unmarshal(r.body, &body); bad != nil {
			return nil, invalid("Invalid JSON payload received.")
		}
		names, err := c.parseNames(body.Instances)
		if err != nil {
			return nil, err
		}
		return c.groupOperation(r, g, kind, func(at time.Time) error {
			members, err := g.find(names, body.SkipInstancesOnValidationError)
			if err != nil {
				return err
			}
			g.revision++
			for _, m := range members {
				act(c, at, g, m)
			}
			return nil
		}), nil
	}
}

// instanceName is a name in a request, with its zone if it came as a URL.
type instanceName struct{ zone, name string }

// parseNames reads URLs, whole or from zones/ on, or bare names, but not both
// kinds in a request.
func (c *Cloud) parseNames(list []string) (names []instanceName, err *apiError) {
	if len(list) == 0 {
		return nil, errorf(400, "required", "Required field 'instances' not specified")
	}
	if len(list) > maxNamed {
		return nil, invalid("Invalid value for field 'instances': at most %d instances can be named.", maxNamed)
	}
	bare := 0
	for i, text := range list {
		rest, isLink := text, false
		if j := strings.Index(text, "projects/"); j >= 0 {
			rest, isLink = strings.CutPrefix(text[j:], c.path(""))
			if !isLink {
				return nil, invalid("Invalid value for field 'instances[%d]': '%.200s'. It is in another project.", i, text)
			}
		}
		parts := strings.Split(rest, "/")
		switch {
		case len(parts) == 4 && parts[0] == "zones" && parts[2] == "instances" && resourceName.MatchString(parts[3]):
			names = append(names, instanceName{parts[1], parts[3]})
		case len(parts) == 1 && !isLink && resourceName.MatchString(text):
			bare++
			names = append(names, instanceName{"", text})
		default:
			return nil, invalid("Invalid value for field 'instances[%d]': '%.200s'. The URL is malformed.", i, text)
		}
	}
	if bare != 0 && bare != len(list) {
		return nil, invalid("Invalid value for field 'instances': use URLs or names, not both.")
	}
	return names, nil
}

// find is the members of those names. One that is not a member or is being
// deleted already is left out or makes all fail; one of another place always does.
func (g *group) find(names []instanceName, skip bool) (members []*member, err error) {
	for _, n := range names {
		if n.zone != "" && !slices.Contains(g.zones(), n.zone) {
			return nil, fmt.Errorf("instance %s is in %s, outside of the group", n.name, n.zone)
		}
		i := slices.IndexFunc(g.members, func(m *member) bool {
			return m.name == n.name && (n.zone == "" || n.zone == m.zone) && m.action != actDeleting
		})
		switch {
		case i >= 0 && !slices.Contains(members, g.members[i]):
			members = append(members, g.members[i])
		case i < 0 && !skip:
			return nil, fmt.Errorf("instance %s is not a member of %s, or is being deleted", n.name, g.Name)
		}
	}
	return members, nil
}

// deleteNamed reduces the target size with the instance (deleteInstances).
func deleteNamed(c *Cloud, at time.Time, g *group, m *member) {
	g.target--
	c.remove(at, g, m, ByName)
}

// abandonNamed takes the instance out of the group and leaves the machine
// (abandonInstances).
func abandonNamed(c *Cloud, at time.Time, g *group, m *member) {
	g.target--
	if m.vm != nil {
		c.loose = append(c.loose, m.vm)
	}
	c.forget(at, g, m)
}

// recreateNamed is recreateInstances: the target size stays.
func recreateNamed(c *Cloud, at time.Time, g *group, m *member) { c.recreate(at, m, ByRepair) }
