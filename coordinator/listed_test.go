package coordinator_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/coordinator"
	pb "github.com/spillway-ci/spillway/proto/coordinator"
	"github.com/spillway-ci/spillway/router/session"
)

// A replica that has just begun answered without the pools that are registered, until it
// had read them: as if there were none.
func TestAReplicaThatHasJustBegunListsWhatIsRegistered(t *testing.T) {
	before := start(t, settings{})
	before.register("gpu", "cuda")
	d, err := session.NewDispatcher(before.store, session.Options{Replica: "begins"})
	require.NoError(t, err)
	begins, err := coordinator.New(d, session.NewJobs(d, before.store, before.store, nil), before.store, coordinator.Options{
		Replica: "begins", SilentAfter: patience,
		Configured: func() []coordinator.Configured { return nil },
		Replace:    func([]spillway.Pool) error { return nil },
	})
	require.NoError(t, err)
	list, err := begins.ListPools(as("ops"), &pb.ListPoolsRequest{}) // nothing of it runs yet
	require.NoError(t, err)
	require.Len(t, list.GetPools(), 1)
	require.Equal(t, "gpu", list.GetPools()[0].GetName())
}
