package notices_test

import (
	"context"
	"fmt"
	"net/http"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/agent/notices"
	"github.com/spillway-ci/spillway/internal/peertest"
)

// startMock builds AWS's own mock of the service, at the version that go.tools.mod
// pins, and runs it with version 2 only.
func startMock(t *testing.T, args ...string) (endpoint string) {
	t.Helper()
	program := filepath.Join(t.TempDir(), "ec2-metadata-mock")
	build := exec.Command("go", "build", "-modfile=go.tools.mod", "-o", program, "github.com/aws/amazon-ec2-metadata-mock/cmd/ec2-metadata-mock")
	build.Dir = filepath.Join("..", "..")
	if out, err := build.CombinedOutput(); err != nil {
		peertest.Broken(t, "ec2-metadata-mock can't be built, so the watcher was not tried against AWS's own mock: %v\n%s", err, out)
	}
	port := peertest.FreePort(t)
	mock := exec.Command(program, append(args, "--imdsv2", "--hostname", "127.0.0.1", "--port", strconv.Itoa(port))...)
	mock.Dir = t.TempDir()
	mock.Env = []string{"HOME=" + mock.Dir}
	endpoint = fmt.Sprintf("http://127.0.0.1:%d", port)
	peertest.Start(t, mock, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, endpoint+"/latest/meta-data/", http.NoBody)
		if err != nil {
			return err
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			return err
		}
		if resp.StatusCode != http.StatusUnauthorized {
			peertest.Broken(t, "ec2-metadata-mock answers version 1 with status %d", resp.StatusCode)
		}
		return resp.Body.Close()
	})
	return endpoint
}

func TestPeerSpotNotice(t *testing.T) {
	at := time.Now().Add(2 * time.Minute).Truncate(time.Second).UTC()
	for _, action := range []string{"terminate", "stop", "hibernate"} {
		t.Run(action, func(t *testing.T) {
			t.Parallel()
			w := open(t, notices.Auto, startMock(t, "spot", "--action", action, "--time", at.Format(time.RFC3339)), nil)
			require.Equal(t, notices.AWS, w.Cloud())
			heard := watch(t, w)
			n := next(t, heard)
			if n.Kind == notices.Rebalance { // the mock recommends to rebalance at the same time
				n = next(t, heard)
			}
			require.Equal(t, notices.Notice{Kind: notices.Spot, Deadline: at}, n)
		})
	}
}

// The mock has nothing to say at first: a notice that comes later is heard, too.
func TestPeerNoticeThatComesLater(t *testing.T) {
	t.Parallel()
	heard := watch(t, open(t, notices.AWS, startMock(t, "spot", "--mock-delay-sec", "3", "--rebalance-delay-sec", "1"), nil))
	n := next(t, heard)
	if n.Kind == notices.Rebalance { // else it took us seconds to ask
		n = next(t, heard)
	}
	require.Equal(t, notices.Spot, n.Kind)
	require.WithinDuration(t, time.Now().Add(2*time.Minute), n.Deadline, time.Minute)
}

func TestPeerTerminatingHook(t *testing.T) {
	t.Parallel()
	heard := watch(t, open(t, notices.AWS, startMock(t, "asglifecycle", "--asg-termination-delay-sec", "1"), nil))
	require.Equal(t, notices.Notice{Kind: notices.Terminating}, next(t, heard))
}

func TestPeerInstanceID(t *testing.T) {
	t.Parallel()
	id, err := open(t, notices.AWS, startMock(t), nil).InstanceID(t.Context())
	require.NoError(t, err)
	require.Regexp(t, `^i-[0-9a-f]+$`, id)
}
