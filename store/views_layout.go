package store

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/go-redis/v9"

	"github.com/spillway-ci/spillway"
)

// layout is over how many sets the ids of a class are spread. All replicas must use
// the same, or an id would be counted twice. Words have sets of their own: one
// among numbers would make a hash table of them.
type layout struct{ numbers, words int }

func (l layout) String() string { return strconv.Itoa(l.numbers) + "," + strconv.Itoa(l.words) }

func parseLayout(text string) (layout, error) {
	a, b, _ := strings.Cut(text, ",")
	numbers, errA := strconv.Atoi(a)
	words, errB := strconv.Atoi(b)
	most := MaxViewJobs/idsPerShard + 1
	if errA != nil || errB != nil || min(numbers, words) < 0 || max(numbers, words) > most {
		return layout{}, fmt.Errorf("%w: layout %.20q of a view", errContent, text)
	}
	return layout{numbers, words}, nil
}

func shardsFor(ids int) int { return (ids + idsPerShard - 1) / idsPerShard }

// with has room for both kinds that other has. A kind that the first writer had none
// of gets one set: whoever adds it adds the same.
func (l layout) with(other layout) layout {
	if l.numbers == 0 {
		l.numbers = min(1, other.numbers)
	}
	if l.words == 0 {
		l.words = min(1, other.words)
	}
	return l
}

// agreeOnLayouts returns the layout of each class in this epoch: the first replica
// to write decides, by its own number of ids and what the class held lately.
func (s *Store) agreeOnLayouts(ctx context.Context, e epoch, jobs map[spillway.JobClass][]spillway.JobID) (map[string]string, error) {
	sizes, err := s.rdb.HGetAll(ctx, e.sizesKey()).Result()
	if err != nil {
		return nil, err
	}
	own := make(map[spillway.JobClass]layout, len(jobs))
	for class, ids := range jobs {
		own[class] = countKinds(ids)
	}
	for range maxAgreeRounds {
		decided, err := s.rdb.HGetAll(ctx, e.layoutKey()).Result()
		if err != nil {
			return nil, err
		}
		pipe := s.rdb.Pipeline()
		for class, kinds := range own {
			if err := proposeLayout(ctx, pipe, e, class, kinds, decided, sizes); err != nil {
				return nil, err
			}
		}
		if pipe.Len() == 0 {
			return decided, nil
		}
		pipe.PExpireAt(ctx, e.layoutKey(), e.expires)
		if _, err := pipe.Exec(ctx); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("%w: the layout of a view keeps changing", errContent)
}

func proposeLayout(ctx context.Context, pipe redis.Pipeliner, e epoch, class spillway.JobClass, own layout, decided, sizes map[string]string) error {
	if own == (layout{}) {
		return nil
	}
	mine := layout{shardsFor(own.numbers), shardsFor(own.words)}
	text, ok := decided[string(class)]
	if !ok {
		// What the class held lately counts too: this replica may see a part only.
		if lately, err := parseLayout(sizes[string(class)]); err == nil {
			mine = layout{max(mine.numbers, lately.numbers), max(mine.words, lately.words)}
		}
		pipe.HSetNX(ctx, e.layoutKey(), string(class), mine.String())
		return nil
	}
	agreed, err := parseLayout(text)
	if err != nil {
		return err
	}
	if wider := agreed.with(mine); wider != agreed {
		pipe.HSet(ctx, e.layoutKey(), string(class), wider.String())
	}
	return nil
}

func countKinds(ids []spillway.JobID) layout {
	var l layout
	for _, id := range ids {
		if _, ok := id.Numeric(); ok {
			l.numbers++
		} else {
			l.words++
		}
	}
	return l
}

// spread sorts ids into the sets of a layout. What is returned points into ids: a copy
// of each would cost as much as all the rest.
func spread(ids []spillway.JobID, l layout) (numbers, words [][]any) {
	numbers, words = make([][]any, l.numbers), make([][]any, l.words)
	for i := range ids {
		sets := numbers
		n, ok := ids[i].Numeric()
		hash := scatter(uint64(n))
		if !ok {
			sets, hash = words, hashWord(string(ids[i]))
		}
		set := &sets[hash%uint64(len(sets))] // agreeOnLayouts left no kind without a set
		if *set == nil {
			*set = make([]any, 0, len(ids)/len(sets)*9/8+8) // they are about equal
		}
		*set = append(*set, (*string)(&ids[i]))
	}
	return numbers, words
}

// scatter spreads neighbouring numbers evenly: ids of one class often share a
// remainder.
func scatter(n uint64) uint64 {
	n ^= n >> 32
	n *= 0x9E3779B97F4A7C15 // 2^64 ÷ the golden ratio
	n ^= n >> 29
	n *= 0xD6E8FEB86659FD93
	return n ^ n>>32
}

func hashWord(s string) uint64 {
	h := uint64(14695981039346656037)
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return scatter(h)
}
