package notices

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"sync"
	"time"
)

// What the server calls things: Compute Engine documentation, "View and query VM
// metadata" (header, wait_for_change, last_etag, timeout_sec), "Predefined metadata
// keys" (id, preempted) and "Query metadata server for maintenance event notices"
// (maintenance-event and its values).
const (
	flavorHeader = "Metadata-Flavor"
	flavor       = "Google"
	metadataRoot = "/computeMetadata/v1/instance/"

	idPath          = "id"
	preemptedPath   = "preempted"         // FALSE, and TRUE once the instance is being preempted
	maintenancePath = "maintenance-event" // NONE, MIGRATE_ON_HOST_MAINTENANCE or TERMINATE_ON_HOST_MAINTENANCE
)

// changeWithin is how long the server is asked to wait for a change. Not longer: a
// connection that died without a word is noticed then.
const changeWithin = time.Minute

// changeGap is the least time between two questions, should the server not wait.
const changeGap = time.Second

// metadataServer is Google Compute Engine's.
type metadataServer struct {
	endpoint string
	client   *http.Client
	options  *Options
}

func newMetadataServer(endpoint string, o *Options) *metadataServer {
	return &metadataServer{endpoint: endpoint, client: newClient(), options: o}
}

// get asks for one item. An answer without the header is somebody else's.
func (s *metadataServer) get(ctx context.Context, path string, query url.Values, within time.Duration) (answer, error) {
	where := s.endpoint + metadataRoot + path
	if len(query) > 0 {
		where += "?" + query.Encode()
	}
	a, err := ask(ctx, s.client, http.MethodGet, where, http.Header{flavorHeader: {flavor}}, within)
	if (err == nil || errors.Is(err, errAbsent)) && a.header.Get(flavorHeader) != flavor {
		return answer{}, fmt.Errorf("%w: it is not Google's", ErrUnanswered)
	}
	return a, err
}

// instanceID is the instance's number, as the provider has it: an instance that its
// group recreates keeps its name.
func (s *metadataServer) instanceID(ctx context.Context) (string, error) {
	a, err := s.get(ctx, idPath, nil, askWithin)
	if err != nil {
		return "", err
	}
	return checkInstanceID(a.body)
}

// watch waits for a change of each item.
func (s *metadataServer) watch(ctx context.Context, tell func(Notice)) {
	var all sync.WaitGroup
	all.Go(func() { s.follow(ctx, preemptedPath, readPreempted, tell) })
	all.Go(func() { s.follow(ctx, maintenancePath, readMaintenance, tell) })
	all.Wait()
}

// follow reads an item, and then each time that it has changed: the server answers
// when the item is not what it was at the last tag any more.
func (s *metadataServer) follow(ctx context.Context, path string, read func(string) (Notice, error), tell func(Notice)) {
	pace := newPace(s.options.Log, "Google metadata "+path, min(s.options.Every, changeGap))
	tag := ""
	for {
		a, err := s.next(ctx, path, tag)
		var n Notice
		if err == nil {
			if n, err = read(a.body); err == nil && n.Kind != None {
				tell(n)
			}
		}
		wait := pace.next(ctx, err)
		if err != nil {
			tag = ""
		} else if next := a.header.Get("ETag"); next != "" {
			tag = next
		} else {
			wait = s.options.Every // it can't wait for a change: ask now and then
		}
		if !pause(ctx, wait) {
			return
		}
	}
}

// next asks at once without a tag, and with one waits for a change.
func (s *metadataServer) next(ctx context.Context, path, tag string) (answer, error) {
	if tag == "" {
		return s.get(ctx, path, nil, askWithin)
	}
	query := url.Values{
		"wait_for_change": {"true"}, "last_etag": {tag}, "timeout_sec": {strconv.Itoa(int(changeWithin.Seconds()))},
	}
	return s.get(ctx, path, query, changeWithin+askWithin)
}

// readPreempted: the documentation promises 30 s at best and no time, so that no
// deadline is known.
func readPreempted(body string) (Notice, error) {
	switch body {
	case "TRUE":
		return Notice{Kind: Spot}, nil
	case "FALSE":
		return Notice{}, nil
	default:
		return Notice{}, fmt.Errorf("%w: preempted is %.20q", ErrUnanswered, body)
	}
}

// readMaintenance: an instance that migrates goes on with its jobs on another host.
func readMaintenance(body string) (Notice, error) {
	switch body {
	case "TERMINATE_ON_HOST_MAINTENANCE":
		return Notice{Kind: Maintenance}, nil
	case "NONE", "MIGRATE_ON_HOST_MAINTENANCE":
		return Notice{}, nil
	default:
		return Notice{}, fmt.Errorf("%w: maintenance-event is %.40q", ErrUnanswered, body)
	}
}
