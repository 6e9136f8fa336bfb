package ec2asg_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/providers/ec2asg"
)

// api speaks as much of the Auto Scaling Query API as this provider uses.
type api struct {
	t        *testing.T
	groups   map[string]string // name → its <member>
	pageSize int
	endless  bool             // every page has a next one
	fail     http.HandlerFunc // answers instead, from call failFrom to failTo
	failFrom int              // 1 = the first; 0 = never
	failTo   int              // 0 = the last
	calls    atomic.Int64     // so far
}

// aside are the answers to calls that this stand-in does not count.
var aside = map[string]string{
	"DescribeInstances":         `<DescribeInstancesResponse xmlns="http://ec2.amazonaws.com/doc/2016-11-15/"><reservationSet/></DescribeInstancesResponse>`,
	"DescribeScalingActivities": `<DescribeScalingActivitiesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeScalingActivitiesResult><Activities/></DescribeScalingActivitiesResult></DescribeScalingActivitiesResponse>`,
	"DescribePolicies":          `<DescribePoliciesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribePoliciesResult><ScalingPolicies/></DescribePoliciesResult></DescribePoliciesResponse>`,
	"DescribeInstanceRefreshes": `<DescribeInstanceRefreshesResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeInstanceRefreshesResult><InstanceRefreshes/></DescribeInstanceRefreshesResult></DescribeInstanceRefreshesResponse>`,
	"DescribeLifecycleHooks":    `<DescribeLifecycleHooksResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeLifecycleHooksResult><LifecycleHooks/></DescribeLifecycleHooksResult></DescribeLifecycleHooksResponse>`,
}

func (a *api) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	assert.NoError(a.t, r.ParseForm())
	form := map[string]string{}
	for key := range r.PostForm {
		form[key] = r.PostForm.Get(key)
	}
	call := int(a.calls.Add(1))
	w.Header().Set("Content-Type", "text/xml")
	if a.fail != nil && call >= a.failFrom && (a.failTo == 0 || call <= a.failTo) {
		a.fail(w, r)
		return
	}
	if empty, ok := aside[form["Action"]]; ok { // what a look does beside: it finds nothing
		a.calls.Add(-1)
		fmt.Fprint(w, empty)
		return
	}
	assert.Equal(a.t, "DescribeAutoScalingGroups", form["Action"])
	assert.Contains(a.t, r.Header.Get("Authorization"), "/us-east-1/autoscaling/aws4_request")

	var found []string
	for i := 1; form["AutoScalingGroupNames.member."+strconv.Itoa(i)] != ""; i++ {
		if group, ok := a.groups[form["AutoScalingGroupNames.member."+strconv.Itoa(i)]]; ok {
			found = append(found, group)
		}
	}
	from, _ := strconv.Atoi(form["NextToken"])
	to := min(from+a.pageSize, len(found))
	next := ""
	if to < len(found) || a.endless {
		next = "<NextToken>" + strconv.Itoa(to) + "</NextToken>"
	}
	fmt.Fprintf(w, `<DescribeAutoScalingGroupsResponse xmlns="http://autoscaling.amazonaws.com/doc/2011-01-01/"><DescribeAutoScalingGroupsResult><AutoScalingGroups>%s</AutoScalingGroups>%s</DescribeAutoScalingGroupsResult></DescribeAutoScalingGroupsResponse>`,
		strings.Join(found[from:to], ""), next)
}

// group is the <member> of a group.
func group(name string, desired, minSize, maxSize int, rest string) string {
	return fmt.Sprintf(`<member><AutoScalingGroupName>%s</AutoScalingGroupName><DesiredCapacity>%d</DesiredCapacity><MinSize>%d</MinSize><MaxSize>%d</MaxSize>%s</member>`,
		name, desired, minSize, maxSize, rest)
}

// vm is the <member> of an instance.
func vm(id, state, health, protected string) string {
	return fmt.Sprintf(`<member><InstanceId>%s</InstanceId><LifecycleState>%s</LifecycleState><HealthStatus>%s</HealthStatus><ProtectedFromScaleIn>%s</ProtectedFromScaleIn><AvailabilityZone>us-east-1a</AvailabilityZone></member>`,
		id, state, health, protected)
}

func inside(members ...string) string {
	return "<Instances>" + strings.Join(members, "") + "</Instances>"
}

func failure(status int, code string, headers ...string) http.HandlerFunc {
	return func(w http.ResponseWriter, _ *http.Request) {
		for i := 0; i+1 < len(headers); i += 2 {
			w.Header().Set(headers[i], headers[i+1])
		}
		w.WriteHeader(status)
		if code != "" {
			fmt.Fprintf(w, `<ErrorResponse><Error><Type>Sender</Type><Code>%s</Code><Message>said by the test</Message></Error><RequestId>r</RequestId></ErrorResponse>`, code)
		}
	}
}

// serve starts the API and a provider that asks it for the named groups.
func serve(t *testing.T, a *api, names ...string) *ec2asg.Provider {
	t.Helper()
	a.t = t
	if a.pageSize == 0 {
		a.pageSize = 100
	}
	server := httptest.NewServer(a)
	t.Cleanup(server.Close)
	return configured(t, server.URL, names...)
}

func configured(t *testing.T, endpoint string, names ...string) *ec2asg.Provider {
	t.Helper()
	testCredentials(t)
	config, err := json.Marshal(map[string]any{"region": "us-east-1", "endpoint": endpoint, "groups": names})
	require.NoError(t, err)
	p := ec2asg.New()
	require.NoError(t, p.Configure(t.Context(), config))
	return p
}

// testCredentials keeps whatever the machine has out of the test.
func testCredentials(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
	t.Setenv("AWS_SECRET_ACCESS_KEY", "secret-of-the-test")
	isolate(t)
}

func isolate(t *testing.T) {
	t.Helper()
	t.Setenv("AWS_CONFIG_FILE", "/dev/null")
	t.Setenv("AWS_SHARED_CREDENTIALS_FILE", "/dev/null")
	t.Setenv("AWS_EC2_METADATA_DISABLED", "true")
	t.Setenv("AWS_PROFILE", "")
	t.Setenv("AWS_SESSION_TOKEN", "")
}
