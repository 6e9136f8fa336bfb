package ec2asg

import (
	"sync"
	"time"

	"github.com/aws/aws-sdk-go-v2/aws"
	"github.com/aws/aws-sdk-go-v2/service/autoscaling/types"
)

// homeLife is how long the group of an instance is remembered that is not seen any
// more: notices may come late.
const homeLife = time.Hour

// homes remembers the group of each instance, for notices that name the instance
// only.
type homes struct {
	now func() time.Time
	mu  struct {
		sync.Mutex
		all    map[string]home
		pruned time.Time
	}
}

type home struct {
	group string
	seen  time.Time
}

func newHomes(now func() time.Time) *homes {
	h := &homes{now: now}
	h.mu.all = map[string]home{}
	return h
}

// saw learns from groups that were read.
func (h *homes) saw(groups []*types.AutoScalingGroup) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := h.now()
	for _, g := range groups {
		for i := range g.Instances {
			h.mu.all[aws.ToString(g.Instances[i].InstanceId)] = home{aws.ToString(g.AutoScalingGroupName), now}
		}
	}
	if now.Sub(h.mu.pruned) < homeLife {
		return
	}
	h.mu.pruned = now
	for id, it := range h.mu.all {
		if now.Sub(it.seen) >= homeLife {
			delete(h.mu.all, id)
		}
	}
}

// add learns of one instance.
func (h *homes) add(id, group string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.all[id] = home{group, h.now()}
}

// of is the group of an instance; "" = not known.
func (h *homes) of(id string) string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.mu.all[id].group
}
