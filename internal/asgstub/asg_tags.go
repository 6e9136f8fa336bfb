package asgstub

import (
	"cmp"
	"slices"
	"strconv"
)

// groupTag is a tag together with its group.
type groupTag struct {
	g *group
	Tag
}

func (t groupTag) key() string { return t.g.name + "\x00" + t.Key }

// describeTags:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeTags.html
func describeTags(x *exchange) error {
	const list = "tags"
	filters := x.p.filters("Filters.member", "Values.member")
	for _, f := range filters {
		if !slices.Contains([]string{"auto-scaling-group", "key", "value", "propagate-at-launch"}, f.name) {
			x.p.fail(invalid("%s is not a valid filter", f.name))
		}
	}
	pg := x.p.page(list, 50, 100, x.faults.PageSize)
	if err := x.p.done(); err != nil {
		return err
	}
	var found []groupTag
	for _, g := range x.c.mu.order {
		for _, t := range g.tags {
			if tag := (groupTag{g, t}); tag.passes(filters) {
				found = append(found, tag)
			}
		}
	}
	found, next := cut(found, pg, list, groupTag.key)
	x.w.in("Tags", func() {
		for _, t := range found {
			x.w.in("member", func() { t.g.describeTag(&x.w, t.Tag) })
		}
	})
	x.w.some("NextToken", next)
	return nil
}

func (t groupTag) passes(filters []filter) bool {
	for _, f := range filters {
		is := map[string]string{
			"auto-scaling-group": t.g.name, "key": t.Key, "value": t.Value,
			"propagate-at-launch": strconv.FormatBool(t.PropagateAtLaunch),
		}[f.name]
		if !slices.Contains(f.values, is) {
			return false
		}
	}
	return true
}

// createTags:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_CreateOrUpdateTags.html
func createTags(x *exchange) error {
	groups := x.tagged()
	tags := x.tags("Tags.member", "")
	if err := x.p.done(); err != nil {
		return err
	}
	for i, t := range tags {
		groups[i].untag(t.Key)
		groups[i].tags = append(groups[i].tags, t)
		slices.SortFunc(groups[i].tags, func(a, b Tag) int { return cmp.Compare(a.Key, b.Key) })
	}
	return nil
}

// deleteTags:
// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DeleteTags.html
func deleteTags(x *exchange) error {
	groups := x.tagged()
	tags := x.tags("Tags.member", "")
	if err := x.p.done(); err != nil {
		return err
	}
	for i, t := range tags {
		groups[i].untag(t.Key)
	}
	return nil
}

func (g *group) untag(key string) {
	g.tags = slices.DeleteFunc(g.tags, func(t Tag) bool { return t.Key == key })
}

// tagged are the groups that the tags of the call are for, in their order.
func (x *exchange) tagged() (out []*group) {
	for _, at := range x.p.prefixes("Tags.member") {
		name := x.p.need(at + ".ResourceId")
		g := x.c.mu.groups[name]
		if g == nil {
			x.p.fail(invalid("AutoScalingGroup name not found - AutoScalingGroup: %s not found", name))
		}
		out = append(out, g)
	}
	if len(out) == 0 {
		x.p.fail(missing("Tags"))
	}
	return out
}
