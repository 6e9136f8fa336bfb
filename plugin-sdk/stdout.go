package pluginsdk

import (
	"bufio"
	"errors"
	"io"
	"os"
	"regexp"
)

// handshakeLine is go-plugin's one line: core version, our version, network,
// address, protocol, certificate. Something may have been printed before it
// without a newline.
var handshakeLine = regexp.MustCompile(`1\|\d+\|(unix|tcp)\|[^|]+\|grpc(\||$)`)

// maxNoiseBytes bounds a line that is looked through for the handshake [bytes].
const maxNoiseBytes = 64 << 10

// guardStdout keeps the handshake from being drowned: go-plugin's host reads the
// first line of standard output and gives up if it is anything else. From here
// on only the handshake reaches the real standard output; all else goes to
// standard error, as does what children and C code write to descriptor 1.
func guardStdout() {
	stdout, err := takeStdout()
	if err != nil {
		return // as good as without a guard
	}
	read, write, err := os.Pipe()
	if err != nil {
		os.Stdout = stdout
		return
	}
	os.Stdout = write // go-plugin prints the handshake here
	go filterStdout(read, stdout, os.Stderr)
}

// filterStdout passes the handshake to stdout and the rest to noise.
func filterStdout(from io.Reader, stdout, noise io.Writer) {
	lines := bufio.NewReaderSize(from, maxNoiseBytes)
	for {
		line, err := lines.ReadSlice('\n')
		if at := handshakeLine.FindIndex(line); at != nil {
			_, _ = noise.Write(line[:at[0]])
			_, _ = stdout.Write(line[at[0]:])
			break
		}
		_, _ = noise.Write(line)
		if err != nil && !errors.Is(err, bufio.ErrBufferFull) {
			return
		}
	}
	_, _ = io.Copy(noise, lines)
}
