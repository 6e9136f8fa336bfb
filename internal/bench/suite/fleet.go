package suite

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spillway-ci/spillway"
	typesv1 "github.com/spillway-ci/spillway/proto/spillway/types/v1"
	"github.com/spillway-ci/spillway/router/session"
)

// The fleet of the dispatch benchmarks: pools that share some of their job classes,
// so that the router has something to decide.
const (
	dispatchPools   = 5
	dispatchClasses = 20
	payloadBytes    = 256
)

var payload = strings.Repeat("x", payloadBytes)

func poolName(i int) string { return "pool-" + strconv.Itoa(i) }

// poolToken is what the machines of a pool register with.
func poolToken(i int) string { return "token-of-" + poolName(i) }

func classTag(i int) string { return "class-" + strconv.Itoa(i) }

// dispatchFleet returns the pools. A class is taken by two of them.
func dispatchFleet() []spillway.Pool {
	pools := make([]spillway.Pool, dispatchPools)
	for i := range pools {
		tags := []string{"linux"}
		for c := range dispatchClasses {
			if c%dispatchPools == i || (c+1)%dispatchPools == i {
				tags = append(tags, classTag(c))
			}
		}
		pools[i] = spillway.Pool{
			Name: poolName(i), Capability: spillway.Capability{Tags: tags}, CapacityPerInstance: 1, Priority: i % 2,
		}
	}
	return pools
}

func fleetTokens() *session.Tokens {
	tokens := make(map[string]spillway.Pool, dispatchPools)
	for i, p := range dispatchFleet() {
		tokens[poolToken(i)] = p
	}
	return session.NewTokens(tokens)
}

func dispatchJob(id int) spillway.Job {
	return spillway.Job{
		ID: spillway.JobID(strconv.Itoa(id)), Script: payload,
		Requirement: spillway.Requirement{Tags: []string{"linux", classTag(id % dispatchClasses)}},
	}
}

// wireJob is the same job as it goes to a machine.
func wireJob(id int) *typesv1.Job {
	return &typesv1.Job{
		Id: strconv.Itoa(id), Script: payload,
		Requirement: &typesv1.Requirement{Tags: []string{"linux", classTag(id % dispatchClasses)}},
	}
}

func jobNumber(id string) (int, error) {
	n, err := strconv.Atoi(id)
	if err != nil {
		return 0, fmt.Errorf("a job of another benchmark: %.40q", id)
	}
	return n, nil
}
