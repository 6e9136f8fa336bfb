// Command observe plays a GitLab fleet that Spillway watches and scales: GitLab hands
// the jobs out itself, a Prometheus counts them, and beside each runner is a sidecar.
package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/spillway-ci/spillway/examples/internal/play"
)

func main() {
	os.Exit(play.Main(play.Example{
		Name:  "observe",
		Waves: []play.Wave{{Jobs: 8}, {After: 5 * time.Second, Jobs: 4}},
		Begin: prometheus,
	}))
}

// prometheus starts one where the pool's count is asked for.
func prometheus(ctx context.Context, s *play.Stage) error {
	program, err := exec.LookPath("prometheus")
	if err != nil {
		return fmt.Errorf("%w: this example needs it (Debian: apt-get install --no-install-recommends prometheus)", err)
	}
	config, err := s.Fill("prometheus.yml")
	if err != nil {
		return err
	}
	count := s.Config.Pools[0].Count.Prometheus
	address, err := play.Address(count.URL)
	if err != nil {
		return err
	}
	cmd := exec.Command(program, "--config.file="+config, "--storage.tsdb.path="+filepath.Join(s.Dir(), "prometheus"), "--web.listen-address="+address)
	hasCounted := count.URL + "/api/v1/query?query=" + url.QueryEscape(count.Query)
	if err := s.Start(ctx, "prometheus", cmd, hasCounted, `"value"`); err != nil {
		return err
	}
	s.Say("Prometheus      %s, which reads GitLab's queue and our own /metrics", count.URL)
	return nil
}
