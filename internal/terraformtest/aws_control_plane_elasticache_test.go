package terraformtest_test

import (
	"bytes"
	"encoding/xml"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// cacheParts keeps what moto 5.2 does not know of ElastiCache: parameter groups, the nodes
// of a replication group and its end, and that of a subnet group. Everything else is passed
// on to moto. What AWS says is in
// https://docs.aws.amazon.com/AmazonElastiCache/latest/APIReference/API_Operations.html
type cacheParts struct {
	moto http.Handler
	mu   struct {
		sync.Mutex
		groups       map[string]*parameterGroup
		ended        map[string]bool // replication groups, which moto is "deleting" for ever
		subnetsEnded []string
		failed       []string // what moto was asked in vain
	}
}

const parameterGroups = "arn:aws:elasticache:us-east-1:123456789012:parametergroup:"

type parameterGroup struct {
	Name        string      `xml:"CacheParameterGroupName"`
	Family      string      `xml:"CacheParameterGroupFamily"`
	Description string      `xml:"Description"`
	ARN         string      `xml:"ARN"`
	parameters  []parameter `xml:"-"`
	tags        []tag       `xml:"-"`
}

type parameter struct {
	Name   string `xml:"ParameterName"`
	Value  string `xml:"ParameterValue"`
	Source string `xml:"Source"`
}

type tag struct {
	Key   string
	Value string
}

// completeMoto puts cacheParts before moto, and returns where it is reached.
func completeMoto(t *testing.T, m moto) (*cacheParts, string) {
	t.Helper()
	to, err := url.Parse(m.endpoint)
	require.NoError(t, err)
	c := &cacheParts{moto: httputil.NewSingleHostReverseProxy(to)}
	c.mu.groups, c.mu.ended = map[string]*parameterGroup{}, map[string]bool{}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	return c, server.URL
}

// ServeHTTP implements http.Handler.
func (c *cacheParts) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(io.LimitReader(r.Body, 1<<20))
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	form, err := url.ParseQuery(string(body))
	if err == nil && strings.Contains(r.Header.Get("Authorization"), "/elasticache/aws4_request") && c.answer(w, form) {
		return
	}
	answer := &status{ResponseWriter: w}
	c.pass(answer, r, body)
	if form.Get("Action") == "CreateReplicationGroup" || form.Get("Action") == "DeleteReplicationGroup" {
		c.nodes(r, form)
	}
	if answer.code >= http.StatusInternalServerError {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.mu.failed = append(c.mu.failed, r.URL.Path+" "+form.Get("Action")+r.Header.Get("X-Amz-Target"))
	}
}

func (c *cacheParts) pass(w http.ResponseWriter, r *http.Request, body []byte) {
	r = r.Clone(r.Context())
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	c.moto.ServeHTTP(w, r)
}

// nodes has moto make, or end, the nodes of a replication group: it makes one without,
// and has none to describe afterwards.
func (c *cacheParts) nodes(r *http.Request, form url.Values) {
	group, of := form.Get("ReplicationGroupId"), maps.Clone(form)
	of.Set("Action", strings.Replace(form.Get("Action"), "ReplicationGroup", "CacheCluster", 1))
	for i := range 2 {
		of.Set("CacheClusterId", fmt.Sprintf("%s-%03d", group, i+1))
		c.pass(httptest.NewRecorder(), r, []byte(of.Encode()))
	}
}

// status keeps the code of an answer.
type status struct {
	http.ResponseWriter
	code int
}

func (s *status) WriteHeader(code int) {
	s.code = code
	s.ResponseWriter.WriteHeader(code)
}

// answer reports whether it has answered.
func (c *cacheParts) answer(w http.ResponseWriter, form url.Values) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	action, name := form.Get("Action"), form.Get("CacheParameterGroupName")
	g, known := c.mu.groups[name]
	switch action {
	case "CreateCacheParameterGroup":
		g = &parameterGroup{
			Name: name, Family: form.Get("CacheParameterGroupFamily"), Description: form.Get("Description"),
			ARN: parameterGroups + name,
		}
		for i := 1; form.Has(nth("Tags.Tag", i, "Key")); i++ {
			g.tags = append(g.tags, tag{form.Get(nth("Tags.Tag", i, "Key")), form.Get(nth("Tags.Tag", i, "Value"))})
		}
		c.mu.groups[name] = g
		say(w, action, result{Groups: []*parameterGroup{g}})
	case "DescribeReplicationGroups":
		if !c.mu.ended[form.Get("ReplicationGroupId")] {
			return false
		}
		refuse(w, "ReplicationGroupNotFoundFault")
	case "DeleteReplicationGroup":
		c.mu.ended[form.Get("ReplicationGroupId")] = true
		return false
	case "DeleteCacheSubnetGroup":
		c.mu.subnetsEnded = append(c.mu.subnetsEnded, form.Get("CacheSubnetGroupName"))
		say(w, action, result{})
	case "ModifyCacheParameterGroup", "DescribeCacheParameterGroups", "DescribeCacheParameters", "DeleteCacheParameterGroup":
		if !known {
			refuse(w, "CacheParameterGroupNotFound")
			return true
		}
		c.about(w, action, g, form)
	case "ListTagsForResource":
		of, ours := strings.CutPrefix(form.Get("ResourceName"), parameterGroups)
		if g, known = c.mu.groups[of]; !ours || !known {
			return false
		}
		say(w, action, result{Tags: g.tags})
	default:
		return false
	}
	return true
}

// about answers what is about a group that is there.
func (c *cacheParts) about(w http.ResponseWriter, action string, g *parameterGroup, form url.Values) {
	switch action {
	case "DescribeCacheParameterGroups":
		say(w, action, result{Listed: []*parameterGroup{g}})
	case "DescribeCacheParameters":
		say(w, action, result{Parameters: g.parameters})
	case "ModifyCacheParameterGroup":
		const list = "ParameterNameValues.ParameterNameValue"
		for i := 1; form.Has(nth(list, i, "ParameterName")); i++ {
			g.parameters = append(g.parameters, parameter{form.Get(nth(list, i, "ParameterName")), form.Get(nth(list, i, "ParameterValue")), "user"})
		}
		say(w, action, result{})
	case "DeleteCacheParameterGroup":
		delete(c.mu.groups, g.Name)
		say(w, action, result{})
	}
}

// nth is the name of a field in a list, as forms have it.
func nth(list string, i int, field string) string { return fmt.Sprintf("%s.%d.%s", list, i, field) }

// result is what is in an answer; each has one part of it.
type result struct {
	Groups     []*parameterGroup `xml:"CacheParameterGroup"`
	Listed     []*parameterGroup `xml:"CacheParameterGroups>CacheParameterGroup"`
	Parameters []parameter       `xml:"Parameters>Parameter"`
	Tags       []tag             `xml:"TagList>Tag"`
}

// say writes a result as AWS's query protocol has it.
func say(w http.ResponseWriter, action string, of result) {
	var text bytes.Buffer
	if err := xml.NewEncoder(&text).EncodeElement(of, xml.StartElement{Name: xml.Name{Local: action + "Result"}}); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "text/xml")
	_, _ = fmt.Fprintf(w, `<%[1]sResponse xmlns="http://elasticache.amazonaws.com/doc/2015-02-02/">%[2]s</%[1]sResponse>`, action, &text)
}

// refuse says that something is not there.
func refuse(w http.ResponseWriter, code string) {
	http.Error(w, "<ErrorResponse><Error><Code>"+code+"</Code></Error></ErrorResponse>", http.StatusNotFound)
}

// parameters are those of a group that is there, by name.
func (c *cacheParts) parameters(name string) map[string]string {
	c.mu.Lock()
	defer c.mu.Unlock()
	all := map[string]string{}
	if g, known := c.mu.groups[name]; known {
		for _, p := range g.parameters {
			all[p.Name] = p.Value
		}
	}
	return all
}

// ended reports whether nothing is left of what is kept here.
func (c *cacheParts) ended() (groups int, subnets []string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.mu.groups), c.mu.subnetsEnded
}

// failures are the calls that moto has failed.
func (c *cacheParts) failures() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.failed
}
