package examples_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// stat is the state and the parent of a process; ok is false when there is none.
func stat(pid int) (state string, parent int, ok bool) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return "", 0, false
	}
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	parent, err = strconv.Atoi(fields[1])
	return fields[0], parent, err == nil
}

func alive(pid int) bool {
	state, _, ok := stat(pid)
	return ok && state != "Z"
}

// descendants are the processes below pid.
func descendants(t *testing.T, pid int) (below []int) {
	t.Helper()
	paths, err := filepath.Glob("/proc/[0-9]*")
	require.NoError(t, err)
	children := map[int][]int{}
	for _, path := range paths {
		child, err := strconv.Atoi(filepath.Base(path))
		require.NoError(t, err)
		if _, parent, ok := stat(child); ok && alive(child) {
			children[parent] = append(children[parent], child)
		}
	}
	for queue := children[pid]; len(queue) > 0; queue = append(queue[1:], children[queue[0]]...) {
		below = append(below, queue[0])
	}
	return below
}
