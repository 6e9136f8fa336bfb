package suite

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"github.com/spillway-ci/spillway/internal/asgstub"
	"github.com/spillway-ci/spillway/internal/bench/redisd"
	"github.com/spillway-ci/spillway/store"
)

// idleStand is a control plane whose pools have all their instances, and what it needs:
// Redis, the plugin for Auto Scaling, and a stand-in for that. All but the stand-in are
// processes of their own.
type idleStand struct {
	dir   string
	redis *redisd.Server
	cloud *cloud
	store *store.Store
	addr  string        // of the runners' listener, each time that it is started
	plane *planeProcess // nil = none runs
	pools int
	each  int // instances of a pool
}

// newIdleStand starts all but the control plane. dir has the files of an authority.
func newIdleStand(ctx context.Context, dir string, pools, each int) (_ *idleStand, err error) {
	if err := buildPrograms(ctx, dir, servePlane, asgPlugin); err != nil {
		return nil, err
	}
	s := &idleStand{dir: dir, pools: pools, each: each}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.stop())
		}
	}()
	if s.redis, err = redisd.Start(ctx); err != nil {
		return nil, err
	}
	if s.store, err = store.Open(ctx, store.Options{Addrs: []string{s.redis.Addr}}); err != nil {
		return nil, err
	}
	group := asgstub.GroupConfig{Min: each, Desired: each, Max: each, NewInstancesProtected: true}
	if s.cloud, err = startCloud(asgstub.Options{}, pools, group); err != nil {
		return nil, err
	}
	s.addr, err = freeAddress()
	return s, err
}

// instances are those of each pool.
func (s *idleStand) instances() [][]string {
	all := make([][]string, s.pools)
	for pool := range all {
		for _, in := range s.cloud.Existing(groupName(pool)) {
			all[pool] = append(all[pool], in.ID)
		}
	}
	return all
}

// restart kills the control plane, if there is one, and starts another in its place.
func (s *idleStand) restart(ctx context.Context) (err error) {
	if s.plane != nil {
		s.plane.kill()
		s.plane = nil
	}
	env := append([]string(nil), cloudEnvironment...)
	for i := range s.pools {
		env = append(env, tokenVariable(i)+"="+poolToken(i))
	}
	s.plane, err = startPlaneProcess(ctx, s.dir, "spillway", s.configuration(), env...)
	return err
}

// configuration has all defaults but for what the work needs.
func (s *idleStand) configuration() map[string]any {
	file := func(name string) string { return filepath.Join(s.dir, name) }
	pools := make([]any, s.pools)
	for i := range pools {
		pools[i] = map[string]any{
			"name": poolName(i), "capability": map[string]any{"tags": []string{poolTag(i)}},
			"provider": "aws", "group": groupName(i), "runner_token": fromVariable(tokenVariable(i)),
			// A control plane that has just been started knows no runner yet, and is not to
			// replace the instances for that.
			"policy": map[string]any{"min": s.each, "max": s.each, "register_timeout": "24h"},
		}
	}
	return map[string]any{
		"listen": map[string]any{
			"runners": s.addr, "api": "127.0.0.1:0", "metrics": "127.0.0.1:0",
			"tls": map[string]any{"cert_file": file(serverCert), "key_file": file(serverKey), "ca_file": file(authorityCert)},
		},
		"log":       map[string]any{"format": "json"},
		"store":     map[string]any{"redis": map[string]any{"addrs": []string{s.redis.Addr}}},
		"providers": asgProvider(s.dir, s.cloud.pluginConfig()),
		"pools":     pools,
	}
}

// recordsTimeout is how long the last record may take to be written.
const recordsTimeout = 10 * time.Second

// unrecorded is how many runners have no record of the connection that they have made
// since then, once as many have one as will.
func (s *idleStand) unrecorded(ctx context.Context, since time.Time) (missing int, err error) {
	const every = 100 * time.Millisecond
	for end := time.Now().Add(recordsTimeout); ; {
		all, err := s.store.Machines(ctx)
		if err != nil {
			return 0, fmt.Errorf("reading the machines' records: %w", err)
		}
		missing = s.pools * s.each
		for i := range all {
			if all[i].Connected && !all[i].HeardAt.Before(since.Truncate(time.Second)) {
				missing--
			}
		}
		if missing == 0 || time.Now().After(end) {
			return missing, nil
		}
		if err := wait(ctx, every); err != nil {
			return 0, err
		}
	}
}

// stop takes all down that runs.
func (s *idleStand) stop() (err error) {
	if s.plane != nil {
		err = s.plane.stop()
	}
	if s.cloud != nil {
		s.cloud.stop()
	}
	if s.store != nil {
		_ = s.store.Close()
	}
	if s.redis != nil {
		s.redis.Stop()
	}
	return err
}
