// Command route plays a fleet of unmodified GitLab Runners whose job router is Spillway:
// they have its address as their GitLab's, and it hands them GitLab's jobs.
package main

import (
	"os"
	"time"

	"github.com/spillway-ci/spillway/examples/internal/play"
)

func main() {
	os.Exit(play.Main(play.Example{
		Name:  "route",
		Waves: []play.Wave{{Jobs: 8}, {After: 5 * time.Second, Jobs: 4}},
		End: func(s *play.Stage) {
			runners, others := s.GitLab.Asked()
			s.Say("GitLab was asked for a job %d times by Spillway, and %d times by runners themselves", others, runners)
		},
	}))
}
