package controlplane

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestSeldom(t *testing.T) {
	var s seldom
	var said []int
	now := time.Unix(0, 0)
	say := func(after time.Duration) {
		now = now.Add(after)
		s.say(now, func(unsaid int) { said = append(said, unsaid) })
	}
	say(0)
	for range 999 {
		say(time.Millisecond)
	}
	require.Equal(t, []int{0}, said)
	say(sayEvery)
	require.Equal(t, []int{0, 999}, said)
	say(sayEvery - 1)
	say(1)
	require.Equal(t, []int{0, 999, 1}, said)
}
