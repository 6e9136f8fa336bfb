package simcloud

import (
	"fmt"

	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// births are the instances of a pool in the order of their launches, which is how
// stories name them: the third is i-0003, whatever the cloud calls it.
type births struct {
	ids    []string       // by launch, those of the start first
	nth    map[string]int // of id
	mute   map[int]bool   // launches whose runner never registers
	kept   map[int]bool   // launches that are marked as not to be touched
	doomed map[string]bool
}

// newBirths reads the names in a story.
func newBirths(c fake.Config) (*births, error) {
	b := &births{nth: make(map[string]int), doomed: make(map[string]bool)}
	var err error
	if b.mute, err = launches(c.NeverRegister.IDs); err != nil {
		return nil, err
	}
	if b.kept, err = launches(c.Kept); err != nil {
		return nil, err
	}
	return b, nil
}

// launches are the numbers in names such as i-0003, from 0.
func launches(names []string) (map[int]bool, error) {
	set := make(map[int]bool, len(names))
	for _, name := range names {
		var n int
		if _, err := fmt.Sscanf(name, "i-%d", &n); err != nil || n < 1 || fmt.Sprintf("i-%04d", n) != name {
			return nil, pluginsdk.Errorf(pluginsdk.KindUnsupported, "an instance is named by its launch here, as i-0001: %q is none", name)
		}
		set[n-1] = true
	}
	return set, nil
}

func (b *births) add(id string) {
	if _, known := b.nth[id]; known {
		return // it came back from a warm pool
	}
	b.nth[id] = len(b.ids)
	b.ids = append(b.ids, id)
}

// isMute reports whether a story says that the instance never registers.
func (b *births) isMute(id string) bool {
	n, known := b.nth[id]
	return known && b.mute[n]
}

// isKept reports whether somebody has marked the instance.
func (b *births) isKept(id string) bool {
	n, known := b.nth[id]
	return known && b.kept[n]
}

// keep marks one that exists.
func (b *births) keep(id string) { b.kept[b.nth[id]] = true }

// of is the nth launch.
func (b *births) of(n int) (id string, ok bool) {
	if n < 0 || n >= len(b.ids) {
		return "", false
	}
	return b.ids[n], true
}
