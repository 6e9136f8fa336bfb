package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway"
)

// RegisteredClasses are those that Counts looks at, sorted by their last push.
func RegisteredClasses(t *testing.T, s *Store) []spillway.JobClass {
	t.Helper()
	ctx, done := s.begin(t.Context())
	defer done()
	names, err := s.rdb.ZRange(ctx, s.registryKeys()[0], 0, -1).Result()
	require.NoError(t, err)
	classes := make([]spillway.JobClass, len(names))
	for i, n := range names {
		classes[i] = spillway.JobClass(n)
	}
	return classes
}

// LoseIndex removes a job from the index, as an interrupted call may.
func LoseIndex(t *testing.T, s *Store, id spillway.JobID) {
	t.Helper()
	s.dropFromIndex(t.Context(), []any{string(id)})
}

// LoseClass removes all that a class holds.
func LoseClass(t *testing.T, s *Store, class spillway.JobClass) {
	t.Helper()
	require.NoError(t, s.rdb.Del(t.Context(), s.classKeys(class)...).Err())
}

// LoseRequirements removes what is known of all classes' needs, here and there.
func LoseRequirements(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, s.rdb.Del(t.Context(), s.registryKeys()[1]).Err())
	s.requirements.Lock()
	defer s.requirements.Unlock()
	s.requirements.byClass = nil
}

// Indexed reports whether the index has a job.
func Indexed(t *testing.T, s *Store, id spillway.JobID) bool {
	t.Helper()
	classes, err := s.lookup(t.Context(), []spillway.JobID{id})
	require.NoError(t, err)
	return classes[0] != ""
}

// LosePool loses the slot of a pool's machines, as a failover without the data does.
func LosePool(t *testing.T, s *Store, pool string) {
	t.Helper()
	require.NoError(t, s.rdb.Del(t.Context(), s.machineKeys(pool)...).Err())
}

// BreakDrains leaves something where a pool's drain orders should be.
func BreakDrains(t *testing.T, s *Store, pool string) {
	t.Helper()
	require.NoError(t, s.rdb.Set(t.Context(), s.drainKey(pool), "?", 0).Err())
}

// FillBook writes a machine's book with n open jobs, 0 to n−1, as n begins would.
func FillBook(t *testing.T, s *Store, j RoutedJob, n int) {
	t.Helper()
	keys, text, holders := s.machineKeys(j.Pool), fmt.Sprint(n, " ", j.Begun.UnixMicro()), make([]any, 0, 2*n)
	for i := range n {
		text += fmt.Sprintf("\n%d %d %d", i, j.Begun.UnixMicro(), j.Until.UnixMicro())
		if j.ConfirmWithin > 0 {
			text += fmt.Sprint(" ", j.Begun.Add(j.ConfirmWithin).UnixMicro())
		}
		holders = append(holders, i, string(j.Machine))
		require.NoError(t, s.rdb.SAdd(t.Context(), s.routedKey(spillway.JobID(fmt.Sprint(i))), j.Pool).Err())
	}
	require.NoError(t, s.rdb.HSet(t.Context(), keys[3], string(j.Machine), text).Err())
	require.NoError(t, s.rdb.HSet(t.Context(), keys[4], holders...).Err())
}

// ForgetScripts makes a server forget the texts of all scripts.
func ForgetScripts(t *testing.T, s *Store) {
	t.Helper()
	require.NoError(t, s.rdb.ScriptFlush(t.Context()).Err())
}

// Exported for fuzzing.
var (
	ParseState    = parseState
	DecodeRecord  = decodeRecord
	DecodeMachine = decodeMachine
	EncodeMachine = encodeMachine
	DecodeEvents  = decodeEvents
	DecodeNotice  = decodeNotice
	DecodeBook    = decodeBook
	DecodeLearned = decodeExperience
	ErrContent    = errContent
	ShardsFor     = shardsFor
)

// DrainsPipeline is how many pools one pipeline asks for.
const DrainsPipeline = drainsPipeline

// CountCurrent counts the epoch that is being written, for benchmarks that can't
// wait for its end.
func CountCurrent(tb testing.TB, s *Store, source string, interval time.Duration) ViewCounts {
	tb.Helper()
	ctx, done := s.begin(tb.Context())
	defer done()
	e, err := s.currentEpoch(ctx, source, interval)
	require.NoError(tb, err)
	head, _, err := s.readHead(ctx, e)
	require.NoError(tb, err)
	counts, _, err := s.countEpoch(ctx, e, head, nil)
	require.NoError(tb, err)
	return counts
}

// PublishRaw publishes a payload where notices are, as anybody with the password can.
func PublishRaw(tb testing.TB, s *Store, payload string) {
	tb.Helper()
	require.NoError(tb, s.rdb.Publish(tb.Context(), s.channel("notices"), payload).Err())
}

// AgeClasses makes all classes look as if nothing had been pushed for a while.
func AgeClasses(t *testing.T, s *Store, by time.Duration) {
	t.Helper()
	for _, class := range RegisteredClasses(t, s) {
		require.NoError(t, s.rdb.ZIncrBy(t.Context(), s.registryKeys()[0], -float64(by.Milliseconds()), string(class)).Err())
	}
}

// ScriptSHAs are the names that servers give to our scripts.
func ScriptSHAs() map[string]string {
	shas := map[string]string{}
	for name, s := range map[string]*script{
		"apply": applyScript, "cancel": cancelScript, "claim": claimScript, "counts": countsScript, "drain": drainScript,
		"dropclass": dropClassScript, "index": indexScript, "lease": leaseScript, "machines": machinesScript, "memory": memoryScript,
		"push": pushScript, "reap": reapScript, "records": recordsScript, "reject": rejectScript, "release": releaseScript,
		"renew": renewScript, "touch": touchScript, "begin": beginScript, "finish": finishScript, "routed": routedScript, "board": boardScript,
		"pools": poolsScript, "retry": retryScript, "confirm": confirmScript, "review": reviewScript, "admit": admitScript, "absent": absentScript, "presence": presenceScript, "setting": settingScript, "dropwork": dropWorkScript, "seats": seatsScript, "experience": experienceScript,
	} {
		shas[name] = s.sha
	}
	return shas
}

// ScriptNames are the files of our scripts; queue and book are parts of others.
func ScriptNames(t *testing.T) (names []string) {
	t.Helper()
	files, err := scriptFiles.ReadDir("scripts")
	require.NoError(t, err)
	for _, f := range files {
		if name := strings.TrimSuffix(f.Name(), ".lua"); name != "queue" && name != "book" && name != "chain" {
			names = append(names, name)
		}
	}
	return names
}
