package store

import (
	"hash/fnv"
	"strconv"

	"github.com/spillway-ci/spillway"
)

// indexShards is over how many keys the index of job ids is spread [keys]: enough
// to use all nodes of a Cluster, few enough that a batch fills each of them.
const indexShards = 16

// key joins the prefix, a hash tag and a name. Keys of one script share the tag.
func (s *Store) key(tag, name string) string {
	return s.opt.Prefix + ":{" + tag + "}:" + name
}

// classKeys are the keys of a job class, in the order of scripts/queue.lua.
func (s *Store) classKeys(class spillway.JobClass) []string {
	base := s.opt.Prefix + ":{c:" + string(class) + "}:"
	return []string{
		base + "pending", base + "claims", base + "ended", base + "jobs", base + "state", base + "work", base + "clock", base + "quarantine",
		base + "admitted", base + "routing",
	}
}

// countedKeys are those of a class that are counted, parts of one string: every class is
// counted every second.
func (s *Store) countedKeys(class spillway.JobClass) []string {
	base := s.opt.Prefix + ":{c:" + string(class) + "}:"
	all := base + "pending" + base + "claims" + base + "ended" + base + "admitted" + base + "routing"
	keys := make([]string, 0, 5)
	for _, name := range [...]string{"pending", "claims", "ended", "admitted", "routing"} {
		n := len(base) + len(name)
		keys, all = append(keys, all[:n]), all[n:]
	}
	return keys
}

// registryKeys are the classes by last push, and their requirements.
func (s *Store) registryKeys() []string {
	return []string{s.key("q", "classes"), s.key("q", "requirements")}
}

// indexKeys are one shard of the index: id → class, and ids by first push.
func (s *Store) indexKeys(shard int) []string {
	tag := "i:" + strconv.Itoa(shard)
	return []string{s.key(tag, "class"), s.key(tag, "order")}
}

func indexShard(id spillway.JobID) int {
	h := fnv.New32a()
	_, _ = h.Write([]byte(id)) // a hash never fails
	return int(h.Sum32() % indexShards)
}

func (s *Store) channel(name string) string { return s.opt.Prefix + ":" + name }

// channels is the first argument of the scripts of a class: the prefix of their
// channels, and whether the servers are a Cluster's.
func (s *Store) channels() string {
	if s.opt.Cluster {
		return s.opt.Prefix + ":"
	}
	return s.opt.Prefix
}
