package ec2asg_test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	callsOfAWS = regexp.MustCompile(`\.(scaling|ec2|queue|cloudwatch)\.([A-Z]\w+), `)
	rightsSaid = regexp.MustCompile(`(?:autoscaling|ec2|sqs|cloudwatch):[A-Z]\w+`)
	services   = map[string]string{"scaling": "autoscaling", "ec2": "ec2", "queue": "sqs", "cloudwatch": "cloudwatch"}
)

// The documentation names exactly the rights that the calls need, and those with
// which somebody could do harm are never needed.
func TestT15_TheRightsThatAreDocumented(t *testing.T) {
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	needed := map[string]bool{}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		source, err := os.ReadFile(file)
		require.NoError(t, err)
		for _, call := range callsOfAWS.FindAllStringSubmatch(string(source), -1) {
			action := strings.TrimSuffix(call[2], "Batch") // the right to a batch is that to one
			needed[services[call[1]]+":"+action] = true
		}
	}
	doc, err := os.ReadFile("doc.go")
	require.NoError(t, err)
	must, never, found := strings.Cut(string(doc), "No other right is needed.")
	require.True(t, found)
	said := map[string]bool{}
	for _, right := range rightsSaid.FindAllString(must, -1) {
		if !strings.HasPrefix(right, "autoscaling:ResourceTag") {
			said[right] = true
		}
	}
	require.Equal(t, needed, said)
	require.Len(t, needed, 17)
	for _, right := range []string{"autoscaling:UpdateAutoScalingGroup", "ec2:TerminateInstances", "ec2:RunInstances"} {
		require.Contains(t, never, right)
		require.NotContains(t, needed, right)
	}
	require.Contains(t, must, `{"autoscaling:ResourceTag/spillway-owner": "<the setting owner>"}`)
}
