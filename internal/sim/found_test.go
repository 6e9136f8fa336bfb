package sim_test

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The stories below are what is left of random ones in which an invariant did not
// hold. The first are the scaler's: each is a launch too many.
func TestI3_StoriesThatRandomOnesHaveFound(t *testing.T) {
	for name, story := range map[string]string{
		// Its machine has registered and no list has it yet, when somebody lowers the
		// number and it ends. To set the number back would launch another.
		"what no list has is not asked for again": `
config: {pools: [{name: a, capability: {tags: [x]}, policy: {idle_time: 0s}}]}
cloud: {a: {boot: 0s, visible_after: 20s, protected: false}}
jobs: [{at: 195s, id: j1, tags: [x], duration: 5s}, {at: 300s, id: j2, tags: [x], duration: 5s}]
events: [{at: 200.303s, set_desired: {pool: a, to: 0}}]
`,
		// The cool-off ends in the same look in which the instance is there after all.
		"what has come after all is for the jobs": `
seed: 20289
config: {pools: [{name: p0, capability: {tags: [x]}, capacity_per_instance: 4, policy: {idle_time: 30s}}]}
cloud:
  p0: {halts: [{from: 10m, to: 15m, removal: suspended}], errors: [{from: 5m, to: 20m, kind: transient, ratio: 0.5, delivery: activity}]}
jobs: [{at: 753s, id: j, tags: [x], duration: 300s}]
`,
		// A busy machine is heard again by a store that had lost its record. It isn't
		// the one that boots.
		"who is heard again has not booted": `
config: {pools: [{name: a, capability: {tags: [x]}}]}
jobs: [{at: 2656s, id: j1, tags: [x], duration: 60s}, {at: 2736s, id: j2, tags: [x], duration: 60s}]
events: [{at: 2735.023s, store: {fault: wiped}}]
`,
		// The same, of one that is old enough to be taken for a failed boot until then.
		"who was thought to have failed has not booted now": `
config: {pools: [{name: a, capability: {tags: [x]}, capacity_per_instance: 4, policy: {max: 3}}]}
jobs: [{at: 983s, id: j1, count: 4, tags: [x], duration: 20m}, {at: 1881s, id: j2, tags: [x], duration: 300s}]
events: [{at: 1875.104s, store: {fault: wiped}}]
`,
		// The record of a machine that is gone is dropped in the moment in which six
		// others register: by their numbers, one of those still boots.
		"a record that is dropped hides nobody who has booted": `
config:
  pools:
    - {name: first, capability: {tags: [x]}, policy: {max: 7, idle_time: 0s}}
    - {name: second, capability: {tags: [x]}, priority: 1}
cloud: {first: {boot: 0s}}
jobs: [{at: 1638s, id: j1, tags: [x], duration: 300s}, {at: 1955s, id: j2, count: 7, tags: [x], duration: 60s}]
`,
		// The group replaces an instance, and the new one isn't listed when the old one is
		// given up: what the group wants and hasn't got is coming, though nothing was
		// asked for in a long time.
		"what the group launches for one that it lost is coming": `
config: {pools: [{name: a, capability: {tags: [x]}, capacity_per_instance: 4}]}
cloud: {a: {visible_after: 20s, auto_replace: true}}
jobs: [{at: 734s, id: j, count: 5, tags: [x], duration: 30m}]
events: [{at: 1784.008s, kill_instance: {pool: a, nth: 1}}]
`,
		// A boot of the one pool has failed, and the other has a place coming that nobody
		// needs.
		"who waited for a boot that failed goes where a place is coming": `
config:
  pools:
    - {name: first, capability: {tags: [x, first]}}
    - {name: second, capability: {tags: [x, second]}, priority: 1, capacity_per_instance: 4}
cloud: {first: {never_register: {every: 4}}, second: {boot: 5m}}
jobs: [{at: 1132s, id: j1, count: 4, tags: [x], duration: 30m}, {at: 1458s, id: j2, tags: [second], duration: 60s}]
`,
		// The second call is refused. What the first has launched isn't listed yet, and
		// boots on.
		"a refusal says nothing of the call before": `
seed: 61264
config:
  pools:
    - {name: p0, capability: {tags: [x]}, priority: 1}
    - {name: p1, capability: {tags: [x]}, policy: {max: 4}}
    - {name: p2, capability: {tags: [x]}, priority: 1}
cloud:
  p0: {visible_after: 20s, errors: [{from: 5m, to: 20m, kind: capacity, ratio: 0.5, delivery: call, retry_after: 2m}]}
  p1: {errors: [{from: 5m, to: 20m, kind: capacity, ratio: 1.0, delivery: activity}]}
jobs: [{at: 584s, id: j, count: 5, tags: [x], duration: 60s}]
`,
		// A boot that had failed ends when its hook runs out, and the number falls with it.
		// Until three lists had missed it, one of those that never came seemed to have.
		"what ends with the number hides nobody who is coming": `
seed: 74109
config: {pools: [{name: a, capability: {tags: [x]}, policy: {max: 8}}]}
cloud: {a: {partial: 0.5, never_register: {every: 4}, launch_hook: 11m, halts: [{from: 0s, to: 15m, removal: suspended}]}}
jobs: [{at: 70s, id: j, count: 7, tags: [x], duration: 900s}]
`,
	} {
		t.Run(name, func(t *testing.T) { clean(t, story) })
	}
}

// In these a job waited for a launch that didn't come.
func TestI4_StoriesThatRandomOnesHaveFound(t *testing.T) {
	for name, story := range map[string]string{
		// The book of handed-out jobs is lost, and then has three of the four that a machine
		// runs. GitLab shows the fourth: its place is not free for the job that waits.
		"a job from before the book takes its place": `
mode: route
config: {pools: [{name: a, capability: {tags: [x]}, capacity_per_instance: 4}]}
jobs: [{at: 1814s, id: j1, tags: [x], duration: 900s}, {at: 2462s, id: j2, count: 4, tags: [x], duration: 900s}]
events: [{at: 2365.727s, store: {fault: wiped}}]
`,
	} {
		t.Run(name, func(t *testing.T) { clean(t, story) })
	}
}

// In these the scaler was right, and the simulator blamed it or played them wrong.
func TestNobodyIsBlamedForWhatIsRight(t *testing.T) {
	for name, story := range map[string]string{
		// What the provider finds unhealthy is drained for good: its places don't come back.
		"a drain for good is not taken back": `
config: {pools: [{name: a, capability: {tags: [x]}, capacity_per_instance: 4}]}
jobs: [{at: 100s, id: j1, tags: [x], duration: 900s}, {at: 400s, id: j2, tags: [x], duration: 60s}]
events: [{at: 300s, unhealthy: {pool: a, nth: 0, via: provider}}]
`,
		// One is launched to try, and isn't listed yet. Until it is the pool launches no
		// more, and says so only in its status: it is offered no jobs.
		"what is launched to try is waited for": `
seed: 3538
config:
  pools:
    - {name: p0, capability: {tags: [x]}, capacity_per_instance: 4, policy: {max: 4}}
    - {name: p1, capability: {tags: [x]}}
cloud:
  p0: {visible_after: 20s, errors: [{from: 5m, to: 20m, kind: throttled, ratio: 0.5, delivery: call}]}
  p1: {errors: [{from: 5m, to: 20m, kind: throttled, ratio: 1.0, delivery: call, retry_after: 7s}]}
jobs: [{at: 569s, id: j, count: 5, tags: [x], duration: 900s}]
`,
		// The group replaces an instance by itself. A job that comes before the next list
		// can't be left to what nobody has seen.
		"what the group launches of itself is seen with the next list": `
config: {pools: [{name: a, capability: {tags: [x]}}]}
cloud: {a: {auto_replace: true, halts: [{from: 4m, to: 10m, removal: suspended}]}}
jobs: [{at: 100s, id: j1, tags: [x], duration: 60s}, {at: 402s, id: j2, tags: [x], duration: 60s}]
events: [{at: 280.077s, interrupt: {pool: a, nth: 0, notice: 2m, kind: spot, via: machine}}]
`,
		// The pool is full until an instance that was used up has gone, which the next list
		// shows.
		"room that has just come is seen with the next list": `
seed: 71587
config:
  pools:
    - {name: p0, capability: {tags: [x, y]}, spill_after: 5m, policy: {max: 5, idle_time: 10m, max_uses: 1}}
    - {name: p1, capability: {tags: [x]}, priority: 1, capacity_per_instance: 4, policy: {max: 7, idle_time: 0s}}
cloud: {p0: {boot: {p50: 40s, p95: 2m}, termination_hook: 1h}}
jobs: [{at: 1612s, id: j1, count: 4, tags: [y], duration: 900s}, {at: 2017s, id: j2, count: 12, tags: [x], duration: 5s}]
`,
		// Somebody ends an instance that no list has had, and a hook holds it: the number
		// falls, and that one bills more than it says can't be known.
		"what ends before anybody has seen it is not counted": `
config: {pools: [{name: a, capability: {tags: [x]}, policy: {max: 9}}]}
cloud: {a: {visible_after: 20s, termination_hook: 5m}}
jobs: [{at: 1837s, id: j, count: 9, tags: [x], duration: 300s}]
events: [{at: 1850.684s, kill_instance: {pool: a, nth: 0}}]
`,
		// A drain is taken back while the machine's replica stands still. A machine forgets
		// an order with the stream that it came over.
		"a drain that was taken back meanwhile is forgotten": `
replicas: 2
config: {pools: [{name: p1, capability: {tags: [x]}, policy: {idle_time: 0s}}]}
jobs: [{at: 2412s, id: j1, tags: [x], duration: 5s}, {at: 2502s, id: j2, tags: [x], duration: 900s}]
events: [{at: 2478.209s, replica: {n: 0, fault: pause, restart_after: 88s}}]
`,
		// A job has ended, and the replica that would hear of it stands still.
		"a place that nobody was told of is not free": `
seed: 90143
replicas: 3
config:
  pools:
    - {name: p0, capability: {tags: [p0]}, policy: {max: 7}}
    - {name: p1, capability: {tags: [p1]}, policy: {max: 5}}
cloud: {p0: {boot: 0s, partial: 0.5}}
jobs: [{at: 1983s, id: j, count: 4, tags: [p0], duration: 300s}]
events:
  - {at: 1910.787s, replica: {n: 0, fault: kill, restart_after: 50s}}
  - {at: 2279.315s, replica: {n: 0, fault: pause, restart_after: 15s}}
`,
		// A runner is deleted in GitLab before any list has named its machine, which then asks
		// for jobs as others do: only that no list ever names it tells, and not at once.
		"whose a deleted runner was is known from before only": `
seed: 70818
mode: route
config:
  gitlab: {url: 'https://gitlab.example.com', api_token: {env: TOKEN}, route: {server_url: 'grpc://spillway.example.com:7704', front: false}}
  pools: [{name: a, capability: {tags: [x]}, policy: {max: 3}, mode: route, gitlab: {runner_id: 7, token: {env: RUNNER}}, observe: {metrics: {}}}]
cloud: {a: {partial: 0.5}}
jobs: [{at: 1441s, id: j, count: 4, tags: [x], duration: 60s}]
events: [{at: 1504.041s, runner: {pool: a, nth: 1, fault: deleted}}]
`,
		// The same where GitLab isn't asked about its runners: that one was deleted can't be
		// known at all.
		"that a runner was deleted is not known where nobody asks": `
seed: 70818
config:
  gitlab: {url: 'https://gitlab.example.com', route: {server_url: 'grpc://spillway.example.com:7704'}}
  pools: [{name: a, capability: {tags: [x]}, policy: {max: 3}, mode: route, gitlab: {token: {env: RUNNER}}}]
cloud: {a: {partial: 0.5}}
jobs: [{at: 1441s, id: j, count: 4, tags: [x], duration: 60s}]
events: [{at: 1504.041s, runner: {pool: a, nth: 1, fault: deleted}}]
`,
		// Whoever asks for a job after the store was wiped leaves the machines the time to
		// tell of it, after the last time too.
		"a second wipe is waited for as the first": `
config: {pools: [{name: a, capability: {tags: [x]}}]}
jobs: [{at: 523s, id: j, tags: [x], duration: 900s}]
events: [{at: 744.802s, store: {fault: wiped}}, {at: 770.7s, store: {fault: wiped}}]
`,
	} {
		t.Run(name, func(t *testing.T) { clean(t, story) })
	}
}

func clean(t *testing.T, story string) {
	t.Helper()
	r := run(t, "duration: 3h\n"+story)
	require.Empty(t, r.Violations)
	require.Equal(t, r.Jobs.Submitted, r.Jobs.Completed)
	require.Zero(t, r.BusyKills)
}
