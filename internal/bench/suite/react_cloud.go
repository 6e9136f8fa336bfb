package suite

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
)

const (
	// headerTimeout bounds how long a client may take to say what it wants.
	headerTimeout = 10 * time.Second
	// namesPerDescribe is the most groups that one DescribeAutoScalingGroups tells of:
	// https://docs.aws.amazon.com/autoscaling/ec2/APIReference/API_DescribeAutoScalingGroups.html
	namesPerDescribe = 100

	opSetDesired = "SetDesiredCapacity"
	opDescribe   = "DescribeAutoScalingGroups"
)

// cloud is a stand-in for Auto Scaling on a socket. It remembers every call.
type cloud struct {
	*asgstub.Cloud

	url     string
	server  *http.Server
	serving sync.WaitGroup
}

func groupName(i int) string { return fmt.Sprintf("group-%04d", i) }

// startCloud serves so many groups, each with the same settings.
func startCloud(opts asgstub.Options, groups int, like asgstub.GroupConfig) (*cloud, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	c := &cloud{Cloud: asgstub.New(opts), url: "http://" + l.Addr().String()}
	for i := range groups {
		like.Name = groupName(i)
		c.AddGroup(like)
	}
	c.server = &http.Server{Handler: c.Cloud, ReadHeaderTimeout: headerTimeout}
	c.serving.Go(func() { _ = c.server.Serve(l) }) // ends with Close
	return c, nil
}

// cloudEnvironment is what the plugin signs its calls with.
var cloudEnvironment = []string{"AWS_ACCESS_KEY_ID=bench", "AWS_SECRET_ACCESS_KEY=none"}

// pluginConfig is what the plugin for Auto Scaling is configured with.
func (c *cloud) pluginConfig() map[string]any {
	return map[string]any{"region": asgstub.DefaultRegion, "endpoint": c.url, "groups": c.Groups()}
}

// asgProvider is a configuration's one provider, named aws, by the plugin in dir.
func asgProvider(dir string, plugin map[string]any) map[string]any {
	return map[string]any{"aws": map[string]any{
		"plugin": filepath.Join(dir, filepath.Base(asgPlugin)), "config": plugin,
		"env": []string{"AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"},
	}}
}

func (c *cloud) stop() {
	_ = c.server.Close()
	c.serving.Wait()
}

// waitForSets returns once so many SetDesiredCapacity have worked, in all.
func (c *cloud) waitForSets(ctx context.Context, sets int) error {
	const every = 5 * time.Millisecond
	for {
		// Refused ones are counted too: only then it is worth to look closer.
		if c.CountOf(opSetDesired) >= sets && len(good(c.Calls(), opSetDesired)) >= sets {
			return nil
		}
		select {
		case <-time.After(every):
		case <-ctx.Done():
			return fmt.Errorf("%d of %d SetDesiredCapacity: %w", len(good(c.Calls(), opSetDesired)), sets, context.Cause(ctx))
		}
	}
}

// good are the calls of an operation that worked, the oldest first.
func good(calls []asgstub.Call, operation string) (out []asgstub.Call) {
	for _, c := range calls {
		if c.Operation == operation && c.Code == "" {
			out = append(out, c)
		}
	}
	return out
}

// writes are the calls that change something, whatever came of them.
func writes(calls []asgstub.Call) (n int) {
	for _, c := range calls {
		if c.Writes() {
			n++
		}
	}
	return n
}

// throttled are the calls that were refused because there were too many.
func throttled(calls []asgstub.Call) (n int) {
	for _, c := range calls {
		if strings.Contains(c.Code, "Throttl") || c.Code == "RequestLimitExceeded" {
			n++
		}
	}
	return n
}

// against compares the first groups with what they should want: how many want less,
// and how many instances the others want beyond it.
func (c *cloud) against(groups, want int) (below, beyond int) {
	for i := range groups {
		g, _ := c.Group(groupName(i))
		if g.Desired < want {
			below++
		}
		beyond += max(0, g.Desired-want)
	}
	return below, beyond
}

// lastOf is when the last of calls came.
func lastOf(calls []asgstub.Call) (last time.Time) {
	for _, c := range calls {
		if c.At.After(last) {
			last = c.At
		}
	}
	return last
}
