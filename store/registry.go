package store

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
	"github.com/spillway-ci/spillway/router"
)

const (
	// MaxClasses bounds the job classes that the queue knows at a time. A job of one
	// more is answered Full.
	MaxClasses = 10_000
	// classIdle is how long a class without any job stays registered. Far longer than
	// an operation lasts, so that a push that has just registered its class can't lose
	// it to the one who tidies up.
	classIdle = time.Hour
)

var (
	touchScript     = mustScript("touch")
	dropClassScript = mustScript("dropclass")
	countsScript    = mustScript("counts")
)

// requirementCache remembers the requirement of each class: it never changes.
type requirementCache struct {
	sync.Mutex
	byClass map[spillway.JobClass]spillway.Requirement
}

func (c *requirementCache) get(class spillway.JobClass) (spillway.Requirement, bool) {
	c.Lock()
	defer c.Unlock()
	r, ok := c.byClass[class]
	return r, ok
}

func (c *requirementCache) put(class spillway.JobClass, r spillway.Requirement) {
	c.Lock()
	defer c.Unlock()
	if c.byClass == nil || len(c.byClass) >= 2*MaxClasses {
		c.byClass = map[spillway.JobClass]spillway.Requirement{}
	}
	c.byClass[class] = r
}

// classCounts is the counts of one class, and how many ended jobs it remembers.
type classCounts struct {
	router.ClassCount
	finished int
}

// Counts returns what the queue holds, by class, with every class that has a
// pending or claimed job. It is whole or an error. Of the jobs that wait for admission it
// knows those under review; which of the others do, admission.Policy knows.
func (s *Store) Counts(ctx context.Context) ([]router.ClassCount, error) {
	ctx, done := s.begin(ctx)
	defer done()
	all, err := s.countClasses(ctx)
	if err != nil {
		return nil, failed("count", err, reading)
	}
	counts := make([]router.ClassCount, 0, len(all))
	for _, c := range all {
		if c.Pending+c.Unadmitted+c.Claimed > 0 {
			counts = append(counts, c.ClassCount)
		}
	}
	return counts, failed("count", s.addRequirements(ctx, counts), reading)
}

// countClasses counts every class that is registered, without its requirement.
func (s *Store) countClasses(ctx context.Context) ([]classCounts, error) {
	names, err := s.rdb.ZRange(ctx, s.registryKeys()[0], 0, -1).Result()
	if err != nil {
		return nil, err
	}
	calls := make([]call, len(names))
	ages := s.ages.Load()
	for i, n := range names {
		calls[i] = call{script: countsScript, keys: s.countedKeys(spillway.JobClass(n)), args: ages.micros()}
	}
	counts := make([]classCounts, 0, len(names))
	queued := 0
	for i, r := range s.run(ctx, calls) {
		c, err := decodeCounts(r, ages)
		if err != nil {
			return nil, err
		}
		c.Class = spillway.JobClass(names[i])
		queued += c.Pending + c.Unadmitted + c.Claimed
		counts = append(counts, c)
	}
	s.queued.counted(queued, s.now())
	return counts, nil
}

func decodeCounts(r reply, ages *countedAges) (classCounts, error) {
	list, err := r.list()
	if err != nil {
		return classCounts{}, err
	}
	if len(list) != 8 {
		return classCounts{}, errReply
	}
	var c classCounts
	c.Pending, c.Claimed, c.finished = int(asInt(list[0])), int(asInt(list[1])), int(asInt(list[2]))
	c.Admitted, c.Unadmitted = int(asInt(list[5])), int(asInt(list[6]))
	c.Pending += c.Admitted
	if c.Pending+c.Unadmitted > 0 {
		if c.Priority, err = strconv.Atoi(asString(list[3])); err != nil {
			return classCounts{}, errReply
		}
		micros, err := strconv.ParseInt(asString(list[4]), 10, 64)
		if err != nil {
			return classCounts{}, errReply
		}
		c.Oldest = submissionBase.Add(time.Duration(micros) * time.Microsecond)
	}
	c.Waited, err = ages.decode(list[7])
	return c, err
}

// addRequirements fills in the requirements, and fetches those that are not known
// yet. One that is missing or wrong is an error: without it, the class would seem to
// need nothing, and any machine would do. The next push to the class repairs it.
func (s *Store) addRequirements(ctx context.Context, counts []router.ClassCount) error {
	var unknown []string
	for i := range counts {
		if _, ok := s.requirements.get(counts[i].Class); !ok {
			unknown = append(unknown, string(counts[i].Class))
		}
	}
	if err := s.learnRequirements(ctx, unknown); err != nil {
		return err
	}
	for i := range counts {
		r, ok := s.requirements.get(counts[i].Class)
		if !ok {
			return fmt.Errorf("%w: the requirement of class %s is missing", errContent, counts[i].Class)
		}
		counts[i].Requirement = r
	}
	return nil
}

func (s *Store) learnRequirements(ctx context.Context, classes []string) error {
	if len(classes) == 0 {
		return nil
	}
	values, err := s.rdb.HMGet(ctx, s.registryKeys()[1], classes...).Result()
	if err != nil {
		return err
	}
	for i, v := range values {
		r, err := decodeRequirement(asString(v))
		if err != nil {
			return err
		}
		if class := spillway.JobClass(classes[i]); r.Class() == class {
			s.requirements.put(class, r)
		}
	}
	return nil
}

// dropIdleClasses forgets classes that have had no job for classIdle.
func (s *Store) dropIdleClasses(ctx context.Context, counts []classCounts, kept map[spillway.JobClass]int64) error {
	empty := map[string]bool{}
	for _, c := range counts {
		if c.Pending+c.Unadmitted+c.Claimed+c.finished == 0 && kept[c.Class] == 0 {
			empty[string(c.Class)] = true
		}
	}
	if len(empty) == 0 {
		return nil
	}
	now, err := s.rdb.Time(ctx).Result()
	if err != nil {
		return err
	}
	idle, err := s.rdb.ZRangeByScoreWithScores(ctx, s.registryKeys()[0], &redis.ZRangeBy{
		Min: "-inf", Max: strconv.FormatInt(now.Add(-classIdle).UnixMilli(), 10), Count: MaxBatch,
	}).Result()
	if err != nil {
		return err
	}
	var calls []call
	for _, z := range idle {
		if name, ok := z.Member.(string); ok && empty[name] {
			calls = append(calls, call{dropClassScript, s.registryKeys(), []any{name, strconv.FormatFloat(z.Score, 'f', 0, 64)}})
		}
	}
	for _, r := range s.run(ctx, calls) {
		if r.err != nil {
			return r.err
		}
	}
	return nil
}
