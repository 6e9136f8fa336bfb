package gcemig_test

import (
	"encoding/json"
	"net/http/httptest"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/migstub"
	"github.com/spillway-ci/spillway/plugin-sdk/providertest"
	"github.com/spillway-ci/spillway/providers/gcemig"
)

// subject is a group of the stub, on sockets and the wall clock.
func subject(t *testing.T, g migstub.GroupConfig, o migstub.Options) providertest.Subject {
	t.Helper()
	g.Faults.Boot, g.Faults.Stop = migstub.Boot{P50: 30 * time.Millisecond}, 20*time.Millisecond
	cloud := migstub.New(o)
	cloud.AddGroup(g)
	server := httptest.NewServer(cloud)
	t.Cleanup(server.Close)
	id := "zones/" + g.Zone + "/" + g.Name
	if g.Region != "" {
		id = "regions/" + g.Region + "/" + g.Name
	}
	config, err := json.Marshal(map[string]any{
		"project": "p", "endpoint": server.URL, "groups": []string{id}, "api_rate": 1000, "owner": "blue",
	})
	require.NoError(t, err)
	return providertest.Subject{Config: config, Group: id, MaxInstances: 4, Settle: time.Minute}
}

func TestContract(t *testing.T) {
	for name, g := range map[string]migstub.GroupConfig{
		"zonal":    zonal("linux", 0),
		"regional": {Name: "linux", Region: regionName},
		"paged":    {Name: "linux", Region: regionName, Paginated: true},
	} {
		t.Run(name, func(t *testing.T) {
			providertest.Run(t, func(t *testing.T) providertest.Subject {
				o := migstub.Options{Faults: migstub.Faults{PageSize: 2, Operations: migstub.OperationTimes{Running: 10 * time.Millisecond}}}
				s := subject(t, g, o)
				s.Provider = gcemig.New()
				return s
			})
		})
	}
}

// What users have: the built plugin in a process of its own.
func TestContractOfTheBuiltPlugin(t *testing.T) {
	if testing.Short() {
		t.Skip("SKIPPED, with -short: builds the plugin")
	}
	path := filepath.Join(t.TempDir(), "spillway-provider-gcemig")
	output, err := exec.Command("go", "build", "-o", path, "github.com/spillway-ci/spillway/cmd/plugins/gcemig").CombinedOutput()
	require.NoError(t, err, string(output))
	providertest.RunBinary(t, path, subject(t, migstub.GroupConfig{Name: "linux", Region: regionName}, migstub.Options{}), "TMPDIR="+t.TempDir())
}
