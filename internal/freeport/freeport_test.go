package freeport

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"
)

// A port that was found free was taken by an outgoing connection of another program
// before the program that was told it listened.
func TestNoOutgoingConnectionGetsThePort(t *testing.T) {
	for range 100 {
		port, err := Find(nil)
		require.NoError(t, err)
		require.Less(t, port, outgoing())
		require.GreaterOrEqual(t, port, lowest)
	}
}

func TestAPortInUseIsNotFound(t *testing.T) {
	first, err := Find(nil)
	require.NoError(t, err)
	l, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(first)))
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	_, err = find(first, first+1, nil)
	require.ErrorIs(t, err, errNone)
	require.ErrorContains(t, err, "address already in use")
}

func TestAPortThatIsTakenIsNotFound(t *testing.T) {
	port, err := Find(func(port int) bool { return port%2 == 0 })
	require.NoError(t, err)
	require.Equal(t, 1, port%2)
	_, err = Find(func(int) bool { return true })
	require.Equal(t, errNone, err)
}

// Of two processes one has the port.
func TestAPortIsClaimedByOneProcess(t *testing.T) {
	const helper = "SPILLWAY_TEST_CLAIM"
	if port, err := strconv.Atoi(os.Getenv(helper)); err == nil {
		require.True(t, Claim(port)) // in the other one
		return
	}
	port, err := Find(nil)
	require.NoError(t, err)
	claim := func() ([]byte, error) {
		other := exec.Command(os.Args[0], "-test.run=^"+t.Name()+"$")
		other.Env = append(os.Environ(), fmt.Sprint(helper, "=", port))
		return other.CombinedOutput()
	}
	said, err := claim()
	require.NoError(t, err, "%s", said)
	require.True(t, Claim(port), "that one has ended")
	require.False(t, Claim(port))
	said, err = claim()
	require.Error(t, err, "%s", said)
}

// Where outgoing connections may have every port, any will do.
func TestNoRoomBelow(t *testing.T) {
	port, err := find(lowest, 1024, nil)
	require.NoError(t, err)
	require.Positive(t, port)
}

func TestFirstOf(t *testing.T) {
	require.Equal(t, 15_000, firstOf("15000\t60999\n"))
	require.Equal(t, outgoingFrom, firstOf(""))
	require.Equal(t, outgoingFrom, firstOf("none"))
}
