package migstub

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// handlerOf is what answers a method. It panics at the start of the program if
// methods.json has one that nothing answers.
func handlerOf(id string) handler {
	resource, verb, _ := strings.Cut(id, ".")
	byVerb := map[string]handler{}
	switch resource {
	case "instanceGroupManagers", "regionInstanceGroupManagers":
		byVerb = groupHandlers
	case "zoneOperations", "regionOperations", "globalOperations":
		byVerb = operationHandlers
	case "instances":
		byVerb = instanceHandlers
	case "autoscalers", "regionAutoscalers":
		byVerb = autoscalerHandlers
	case "instanceTemplates":
		byVerb = templateHandlers
	case "instanceGroups", "regionInstanceGroups":
		byVerb = map[string]handler{"get": getInstanceGroup, "list": listInstanceGroups}
	case "zones":
		byVerb = map[string]handler{"get": getZone, "list": listZones}
	case "regions":
		byVerb = map[string]handler{"get": getRegion, "list": listRegions}
	}
	h := byVerb[verb]
	if h == nil {
		panic("migstub: nothing answers " + id)
	}
	return h
}

// here reports whether something in this zone or region is in the list's.
func (r *request) here(zone, region string) bool {
	return zone == r.names["zone"] && region == r.names["region"]
}

// listOf is a page of resources as a list's answer.
func listOf[T listed](c *Cloud, r *request, kind, collection string, all []T) (any, *apiError) {
	items, next, err := page(c, r, all)
	if err != nil {
		return nil, err
	}
	at := place(r.names["zone"], r.names["region"])
	if collection == "zones" || collection == "regions" {
		at = ""
	}
	path := strings.TrimPrefix(at+"/"+collection, "/")
	return list[T]{
		Kind: kind, ID: c.path(path), Items: items, NextPageToken: next, SelfLink: c.link(path),
	}, nil
}

// aggregate is a page of resources by the place where they are.
func aggregate[T listed](c *Cloud, r *request, kind, collection string, all []T, placeOf func(T) string) (any, *apiError) {
	items, next, err := page(c, r, all)
	if err != nil {
		return nil, err
	}
	byPlace := make(map[string][]T)
	for _, item := range items {
		at := placeOf(item)
		byPlace[at] = append(byPlace[at], item)
	}
	scoped := make(map[string]any, len(byPlace))
	for at, list := range byPlace {
		scoped[at] = map[string]any{collection: list}
	}
	path := "aggregated/" + collection
	return aggregated{Kind: kind, ID: c.path(path), Items: scoped, NextPageToken: next, SelfLink: c.link(path)}, nil
}

// placeIn is zones/Z or regions/R of a link.
func placeIn(links ...string) string {
	for _, l := range links {
		for _, collection := range []string{"zones/", "regions/"} {
			if i := strings.Index(l, collection); i >= 0 {
				name, _, _ := strings.Cut(l[i+len(collection):], "/")
				return collection + name
			}
		}
	}
	return "global"
}

var autoscalerHandlers = map[string]handler{
	"get": func(c *Cloud, r *request) (any, *apiError) {
		for _, g := range c.groups {
			if g.Autoscaler != nil && r.here(g.Zone, g.Region) && or(g.Autoscaler.Name, g.Name) == r.names["autoscaler"] {
				return c.renderAutoscaler(g), nil
			}
		}
		return nil, notFound(c.path(place(r.names["zone"], r.names["region"]) + "/autoscalers/" + r.names["autoscaler"]))
	},
	"list": func(c *Cloud, r *request) (any, *apiError) {
		kind := "compute#autoscalerList"
		if r.names["region"] != "" {
			kind = "compute#regionAutoscalerList"
		}
		return listOf(c, r, kind, "autoscalers", c.autoscalers(func(g *group) bool { return r.here(g.Zone, g.Region) }))
	},
	"aggregatedList": func(c *Cloud, r *request) (any, *apiError) {
		return aggregate(c, r, "compute#autoscalerAggregatedList", "autoscalers", c.autoscalers(func(*group) bool { return true }),
			func(a autoscalerResource) string { return placeIn(a.Zone, a.Region) })
	},
}

func (c *Cloud) autoscalers(in func(*group) bool) (all []autoscalerResource) {
	for _, g := range c.groups {
		if g.Autoscaler != nil && in(g) {
			all = append(all, c.renderAutoscaler(g))
		}
	}
	return all
}

var templateHandlers = map[string]handler{
	"get": func(c *Cloud, r *request) (any, *apiError) {
		for _, g := range c.groups {
			if g.Template.Name == r.names["instanceTemplate"] {
				return c.renderTemplate(g), nil
			}
		}
		return nil, notFound(c.path("global/instanceTemplates/" + r.names["instanceTemplate"]))
	},
	"list": func(c *Cloud, r *request) (any, *apiError) {
		byName := make(map[string]templateResource)
		for _, g := range c.groups {
			byName[g.Template.Name] = c.renderTemplate(g)
		}
		return listOf(c, r, "compute#instanceTemplateList", "instanceTemplates", slices.Collect(maps.Values(byName)))
	},
}

// places is the zones in which groups are, by region.
func (c *Cloud) places() map[string][]string {
	byRegion := make(map[string][]string)
	for _, g := range c.groups {
		for _, z := range g.zones() {
			if region := regionOf(z); !slices.Contains(byRegion[region], z) {
				byRegion[region] = append(byRegion[region], z)
			}
		}
	}
	return byRegion
}

func (c *Cloud) zoneResources() (all []placeResource) {
	for region, zones := range c.places() {
		for _, z := range zones {
			all = append(all, placeResource{
				Kind: "compute#zone", ID: "1", Name: z, Status: "UP",
				Region: c.link("regions/" + region), SelfLink: c.link("zones/" + z),
			})
		}
	}
	return all
}

func (c *Cloud) regionResources() (all []placeResource) {
	for region, zones := range c.places() {
		r := placeResource{Kind: "compute#region", ID: "1", Name: region, Status: "UP", SelfLink: c.link("regions/" + region)}
		for _, z := range zones {
			r.Zones = append(r.Zones, c.link("zones/"+z))
		}
		all = append(all, r)
	}
	return all
}

func pick(all []placeResource, name, path string) (any, *apiError) {
	for _, p := range all {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, notFound(path)
}

func getZone(c *Cloud, r *request) (any, *apiError) {
	return pick(c.zoneResources(), r.names["zone"], c.path("zones/"+r.names["zone"]))
}

func listZones(c *Cloud, r *request) (any, *apiError) {
	return listOf(c, r, "compute#zoneList", "zones", c.zoneResources())
}

func getRegion(c *Cloud, r *request) (any, *apiError) {
	return pick(c.regionResources(), r.names["region"], c.path("regions/"+r.names["region"]))
}

func listRegions(c *Cloud, r *request) (any, *apiError) {
	return listOf(c, r, "compute#regionList", "regions", c.regionResources())
}

var instanceHandlers = map[string]handler{
	"get": func(c *Cloud, r *request) (any, *apiError) {
		vm, err := c.instanceOf(r)
		if err != nil {
			return nil, err
		}
		return c.renderInstance(r.now, vm), nil
	},
	"list": func(c *Cloud, r *request) (any, *apiError) {
		all := c.instances(r.now, func(vm *machine) bool { return vm.zone == r.names["zone"] })
		return listOf(c, r, "compute#instanceList", "instances", all)
	},
	"aggregatedList": func(c *Cloud, r *request) (any, *apiError) {
		return aggregate(c, r, "compute#instanceAggregatedList", "instances", c.instances(r.now, func(*machine) bool { return true }),
			func(i instanceResource) string { return placeIn(i.Zone) })
	},
	// Somebody deletes a machine past its group.
	"delete": func(c *Cloud, r *request) (any, *apiError) {
		vm, err := c.instanceOf(r)
		if err != nil {
			return nil, err
		}
		op := c.newOperation(r.now, "delete")
		op.zone, op.target, op.targetID = vm.zone, c.instancePath(vm.zone, vm.name), vm.id
		op.apply = func(at time.Time) error {
			c.lose(at, vm, BySomebody)
			return nil
		}
		return c.accept(r, op), nil
	},
}

func (c *Cloud) instances(now time.Time, in func(*machine) bool) (all []instanceResource) {
	for _, vm := range c.machines() {
		if vm.exists(now) && in(vm) {
			all = append(all, c.renderInstance(now, vm))
		}
	}
	return all
}

// exists reports whether the API still has the machine: what was preempted and
// not repaired is stopped, everything else that has stopped is deleted.
func (m *machine) exists(now time.Time) bool {
	return m.stoppedAt.IsZero() || now.Before(m.goneAt) || m.preempted
}

// instanceOf is the machine that a path names, by name or id.
func (c *Cloud) instanceOf(r *request) (*machine, *apiError) {
	name := r.names["instance"]
	for _, vm := range c.machines() {
		if vm.zone == r.names["zone"] && vm.exists(r.now) && (vm.name == name || vm.idText() == name) {
			return vm, nil
		}
	}
	return nil, notFound(c.instancePath(r.names["zone"], name))
}
