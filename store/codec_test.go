package store_test

import (
	"bytes"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
	"github.com/spillway-ci/spillway/store"
)

func containsBytes(b []byte, text string) bool { return bytes.Contains(b, []byte(text)) }

func TestMachineCodec(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringN(0, 40, 200)
		at := rapid.Custom(func(t *rapid.T) time.Time {
			if rapid.Bool().Draw(t, "none") {
				return time.Time{}
			}
			return time.UnixMicro(rapid.Int64Range(1, 1<<52).Draw(t, "µs")).UTC()
		})
		m := router.Machine{
			ID: spillway.MachineID(text.Draw(t, "id")), InstanceID: text.Draw(t, "instance"), Pool: text.Draw(t, "pool"),
			Version: text.Draw(t, "version"), Replica: text.Draw(t, "replica"),
			Capacity: rapid.Int().Draw(t, "capacity"), Busy: rapid.Int().Draw(t, "busy"), Assigned: rapid.Int().Draw(t, "assigned"),
			Uses: rapid.Int().Draw(t, "uses"), Draining: rapid.Bool().Draw(t, "draining"), Connected: rapid.Bool().Draw(t, "connected"),
			DrainAckedAt: at.Draw(t, "acked"), HeardAt: at.Draw(t, "heard"), HeartbeatAt: at.Draw(t, "heartbeat"),
			RegisteredAt: at.Draw(t, "registered"), LastUsedAt: at.Draw(t, "used"), StoppingSince: at.Draw(t, "stopping"),
			InterruptedAt: at.Draw(t, "interrupted"), InterruptionDeadline: at.Draw(t, "deadline"),
			InterruptionKind: rapid.SampledFrom([]string{"", "spot", "terminating"}).Draw(t, "kind"),
			Unhealthy:        rapid.SampledFrom([]string{"", "disk full"}).Draw(t, "unhealthy"),
		}
		encoded := store.EncodeMachine(&m)
		got, err := store.DecodeMachine(encoded)
		require.NoError(t, err)
		require.Equal(t, m, got)
		cut := rapid.IntRange(0, len(encoded)-1).Draw(t, "cut")
		_, err = store.DecodeMachine(encoded[:cut])
		require.ErrorIs(t, err, store.ErrContent)
	})
}

// A replica from before the machines' own words reads those that say nothing, and we
// read what it wrote.
func TestMachineWithoutAWordIsWrittenAsBefore(t *testing.T) {
	t.Parallel()
	const before = "\x01\x02\x01m\x03i-1\x01p\x011\x01r\x04\x00\x00\x00\x00\x02\x04\x06\x08\x00"
	m := router.Machine{
		ID: "m", InstanceID: "i-1", Pool: "p", Version: "1", Replica: "r", Capacity: 2, Connected: true,
		HeardAt: time.UnixMicro(1).UTC(), HeartbeatAt: time.UnixMicro(2).UTC(), RegisteredAt: time.UnixMicro(3).UTC(), LastUsedAt: time.UnixMicro(4).UTC(),
	}
	require.Equal(t, before, store.EncodeMachine(&m))
	got, err := store.DecodeMachine(before)
	require.NoError(t, err)
	require.Equal(t, m, got)

	m.Unhealthy = "disk full"
	require.EqualValues(t, 2, store.EncodeMachine(&m)[0])
	_, err = store.DecodeMachine("\x03" + before[1:])
	require.ErrorIs(t, err, store.ErrContent)
}

// A store that was written before there were histories is read on: what is known of a
// job's way is where it is.
func TestAStateWithoutAHistoryIsRead(t *testing.T) {
	t.Parallel()
	const public = "0123456789abcdef 3\n\n\x011"
	r, err := store.DecodeRecord("r 2 1735689600001 1735689600002 0 blue m 0 5 0 r", public)
	require.NoError(t, err)
	require.Len(t, r.Transitions, 2)
	require.Equal(t, spillway.JobTransition{Sequence: 2, State: spillway.Running, Attempt: 2, Pool: "blue", Machine: "m", At: r.StartedAt}, r.Transitions[1])
	r, err = store.DecodeRecord("f 1 1 1 1735689600003 blue m 0 5 0 r\n\x12\x01x", public)
	require.NoError(t, err)
	require.Equal(t, "x", r.Transitions[1].Reason)
	require.Equal(t, spillway.FailureReason("x"), r.Result.Reason)
	r, err = store.DecodeRecord("q 0 0 0 0 % % 0 5 0 %", public)
	require.NoError(t, err)
	require.Len(t, r.Transitions, 1)
	for _, wrong := range []string{"#x;a1", "#-1;a1", "#3", "#;z1", "#;a", "#;ax", "#;a1,x", "#;a1,1,%zz", "#;a1,1,1,1,1,1", "#" + strings.Repeat(";a1", spillway.MaxTransitions)} {
		_, err := store.DecodeRecord("a 1 1 0 0 blue % 0 5 0 r\n"+wrong, public)
		require.ErrorIs(t, err, store.ErrContent, wrong)
	}
}

// FuzzDecode: whatever stands in the store, reading it ends in a value or in an
// error of this package.
func FuzzDecode(f *testing.F) {
	f.Add("q 0 0 0 0 % % 0 900000000000001 0 %", "0123456789abcdef 3\n\n\x011")
	f.Add("c 1 1 1 1 blue m%201 0 5 0 r\n\x12\x01x", "")
	f.Add("q 2 0 0 0 % % 0 900000000000001 0 %\n#;a1,1,blue;q2,,,,why+not", "0123456789abcdef 3\n\n\x011")
	f.Add("p 1 1 1 1 blue m 3 5 0 r\n#7;r1,,,m;p2\n\x12\x01x", "0123456789abcdef 3n\n")
	f.Add("11:11", "1:1:1:")
	f.Add(store.EncodeMachine(&router.Machine{ID: "m", Pool: "p"}), "")
	f.Add(store.EncodeMachine(&router.Machine{ID: "m", Pool: "p", InterruptionKind: "spot"}), "")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, err := range []error{
			second(store.ParseState(a)), second(store.DecodeRecord(a, b)), second(store.DecodeMachine(a)), second(store.DecodeEvents(a)),
		} {
			if err != nil {
				require.ErrorIs(t, err, store.ErrContent)
			}
		}
	})
}

func second[T any](_ T, err error) error { return err }
