package sidecar_test

import (
	"os"
	"testing"

	"github.com/spillway-ci/spillway/agent/sidecar/sidecartest"
)

func TestMain(m *testing.M) {
	sidecartest.Main()
	os.Exit(m.Run())
}
