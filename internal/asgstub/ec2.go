package asgstub

import (
	"cmp"
	"fmt"
	"hash/fnv"
	"net/http"
	"slices"
	"time"
)

// terminatedFor is how long EC2 still shows an instance that has ended:
// https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/terminating-instances.html
const terminatedFor = time.Hour

// ec2Codes are the numbers of the states:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceState.html
var ec2Codes = map[string]int{ec2Pending: 0, ec2Running: 16, ec2ShuttingDown: 32, ec2Terminated: 48, ec2Stopped: 80}

// describeInstances:
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_DescribeInstances.html
func describeInstances(x *exchange) error {
	const list, defaultPage, maxPage = "ec2", 1000, 1000
	ids := x.p.list("InstanceId")
	filters := x.p.filters("Filter", "Value")
	size := x.p.int("MaxResults", defaultPage)
	after := x.p.token(list)
	switch {
	case size < 5 || size > maxPage:
		x.p.fail(&failure{code: "InvalidParameterValue", status: 400, message: fmt.Sprintf("Value ( %d ) for parameter maxResults is invalid. Expecting a value between 5 and 1000.", size)})
	case len(ids) > 0 && x.p.has("MaxResults"):
		x.p.fail(&failure{code: "InvalidParameterCombination", status: 400, message: "The parameter instancesSet cannot be used with the parameter maxResults"})
	}
	if limit := x.faults.PageSize; limit > 0 {
		size = min(size, limit)
	}
	keep, bad := instanceFilter(filters)
	if bad != nil {
		x.p.fail(bad)
	}
	if err := x.p.done(); err != nil {
		return err
	}
	found, err := x.c.ec2Instances(ids)
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(in *instance) bool { return !keep(in) })
	found, next := cut(found, page{size, after}, list, func(in *instance) string { return in.id })
	x.w.in("reservationSet", func() {
		for _, in := range found {
			x.w.in("item", func() {
				x.w.text("reservationId", "r-"+in.id[2:])
				x.w.text("ownerId", x.c.opts.AccountID)
				x.w.strings("groupSet", "item", nil)
				x.w.in("instancesSet", func() { x.w.in("item", func() { in.describeEC2(&x.w) }) })
			})
		}
	})
	x.w.some("nextToken", next)
	return nil
}

// ec2Instances are the instances with these ids, or all, by id.
func (c *Cloud) ec2Instances(ids []string) (found []*instance, err error) {
	shown := func(in *instance) bool {
		return in != nil && in.visible() && (in.runs() || c.mu.now.Sub(in.ended) < terminatedFor)
	}
	for _, id := range ids {
		in := c.mu.instances[id]
		if !shown(in) {
			return nil, &failure{
				code: "InvalidInstanceID.NotFound", status: http.StatusBadRequest,
				message: fmt.Sprintf("The instance ID '%s' does not exist", id),
			}
		}
		if !slices.Contains(found, in) {
			found = append(found, in)
		}
	}
	if len(ids) == 0 {
		for _, in := range c.mu.instances {
			if shown(in) {
				found = append(found, in)
			}
		}
	}
	slices.SortFunc(found, func(a, b *instance) int { return cmp.Compare(a.id, b.id) })
	return found, nil
}

func instanceFilter(filters []filter) (keep func(*instance) bool, bad *failure) {
	for _, f := range filters {
		switch f.name {
		case "instance-id", "instance-state-name", "instance-lifecycle", "availability-zone", "tag-key":
		default:
			if len(f.name) < 5 || f.name[:4] != "tag:" {
				return nil, &failure{code: "InvalidParameterValue", status: 400, message: fmt.Sprintf("The filter '%s' is invalid", f.name)}
			}
		}
	}
	return func(in *instance) bool {
		return !slices.ContainsFunc(filters, func(f filter) bool { return !in.passes(f) })
	}, nil
}

func (in *instance) passes(f filter) bool {
	is := func(s string) bool { return slices.Contains(f.values, s) }
	switch f.name {
	case "instance-id":
		return is(in.id)
	case "instance-state-name":
		return is(in.ec2)
	case "instance-lifecycle":
		return in.spot && is("spot")
	case "availability-zone":
		return is(in.zone)
	case "tag-key":
		return slices.ContainsFunc(in.tags, func(t Tag) bool { return is(t.Key) })
	}
	return slices.ContainsFunc(in.tags, func(t Tag) bool { return f.name == "tag:"+t.Key && is(t.Value) })
}

func (in *instance) describeEC2(w *xmlWriter) {
	w.text("instanceId", in.id)
	w.text("imageId", "ami-0123456789abcdef0")
	w.in("instanceState", func() { describeState(w, in.ec2) })
	w.text("instanceType", in.kind)
	w.time("launchTime", in.launched)
	w.in("placement", func() {
		w.text("availabilityZone", in.zone)
		w.text("tenancy", "default")
	})
	if in.runs() { // an instance that has ended has none any more
		w.text("privateIpAddress", in.privateIP())
	}
	w.in("monitoring", func() { w.text("state", "disabled") })
	w.text("architecture", "x86_64")
	w.text("rootDeviceType", "ebs")
	if in.spot {
		w.text("instanceLifecycle", "spot")
	}
	if !in.taken.IsZero() {
		w.in("stateReason", func() {
			w.text("code", "Server.SpotInstanceTermination")
			w.text("message", "Server.SpotInstanceTermination: Spot instance termination")
		})
	}
	w.in("tagSet", func() {
		for _, t := range in.tags {
			w.in("item", func() { w.text("key", t.Key); w.text("value", t.Value) })
		}
	})
	w.text("hypervisor", "xen")
	w.text("virtualizationType", "hvm")
}

// privateIP is the instance's address, told apart by its id, which every launch counts on.
func (in *instance) privateIP() string {
	sum := fnv.New32a()
	_, _ = sum.Write([]byte(in.id)) // it never fails
	n := sum.Sum32()
	return fmt.Sprintf("10.%d.%d.%d", byte(n>>16), byte(n>>8), byte(n))
}

func describeState(w *xmlWriter, state string) {
	w.int("code", ec2Codes[state])
	w.text("name", state)
}

// terminateInstances ends instances behind the back of their groups, which notice
// and replace them; all or none are known.
// https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_TerminateInstances.html
func terminateInstances(x *exchange) error {
	ids := x.p.list("InstanceId")
	if err := x.p.done(); err != nil {
		return err
	}
	if len(ids) == 0 {
		return &failure{code: "MissingParameter", status: 400, message: "The request must contain the parameter InstanceId"}
	}
	found, err := x.c.ec2Instances(ids)
	if err != nil {
		return err
	}
	x.w.in("instancesSet", func() {
		for _, in := range found {
			before := in.ec2
			in.g.lose(in, BySomebody)
			x.w.in("item", func() {
				x.w.text("instanceId", in.id)
				x.w.in("currentState", func() { describeState(&x.w, in.ec2) })
				x.w.in("previousState", func() { describeState(&x.w, before) })
			})
		}
	})
	return nil
}

// getCallerIdentity:
// https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html
func getCallerIdentity(x *exchange) error {
	if err := x.p.done(); err != nil {
		return err
	}
	x.w.text("Arn", fmt.Sprintf("arn:aws:iam::%s:user/%s", x.c.opts.AccountID, x.who))
	x.w.text("UserId", x.who)
	x.w.text("Account", x.c.opts.AccountID)
	return nil
}
