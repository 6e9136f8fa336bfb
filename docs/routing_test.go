package docs_test

import (
	"fmt"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/config"
	"github.com/spillway-ci/spillway/router"
)

// The page on routing names the weights with their defaults, every outcome and every
// reason, and the bounds that there are.
func TestRoutingIsDescribedAsItIs(t *testing.T) {
	page := read(t, "routing.md")
	weights := reflect.ValueOf(config.Weights(router.DefaultWeights()))
	for i := range weights.NumField() {
		name := weights.Type().Field(i).Tag.Get("yaml")
		require.Contains(t, page, fmt.Sprintf("| `%s` | %g |", name, weights.Field(i).Float()))
	}
	_, explaining, found := strings.Cut(page, "## Explaining\n")
	require.True(t, found)
	for _, o := range []router.Outcome{
		router.OutcomeNoMatch, router.OutcomeUnadmitted, router.OutcomeFree, router.OutcomeWaits, router.OutcomeElsewhere,
		router.OutcomeGrowing, router.OutcomeCooledOff, router.OutcomeDown, router.OutcomeFull, router.OutcomeRefused,
	} {
		require.Contains(t, explaining, "`"+string(o)+"`")
	}
	for _, reason := range []string{router.WaitNoJobs, router.WaitSpillover, router.WaitAdmission, router.WaitTaken} {
		require.Contains(t, page, "`"+reason+"`")
	}
	for _, label := range []string{router.LabelZone, router.LabelDistance} {
		require.Contains(t, page, "`"+label+"`")
	}
	require.Regexp(t, regexp.MustCompile(fmt.Sprintf(`At most %d different times`, router.MaxSpillTimes)), page)
}
