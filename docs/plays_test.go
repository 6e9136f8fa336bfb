package docs_test

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/internal/peertest"
)

// playAsItIs is for what needs nothing.
func playAsItIs(s *stage, blocks []string) { s.run(strings.Join(blocks, "\n")) }

var loopback = regexp.MustCompile(`127\.0\.0\.1:77\d\d\b`)

// free gives each address of the files a free port in its place, the same each time.
func (s *stage) free() func(text string) string {
	ports := map[string]string{}
	return func(text string) string {
		return loopback.ReplaceAllStringFunc(text, func(address string) string {
			if ports[address] == "" {
				ports[address] = peertest.FreeAddress(s.T)
			}
			return ports[address]
		})
	}
}

// playSixtySeconds is the README's. Who types has waited for the control plane meanwhile.
func playSixtySeconds(s *stage, blocks []string) {
	free := s.free()
	files, err := filepath.Glob("../examples/laptop/*")
	require.NoError(s, err)
	for _, file := range files {
		s.write("examples/laptop/"+filepath.Base(file), free(read(s.T, file)))
	}
	s.env = append(s.env, "SPILLWAY_ADDR="+free("127.0.0.1:7701"))
	before, after, found := strings.Cut(blocks[0], "spillway.yaml &\n")
	require.True(s, found)
	script := before + "spillway.yaml &\n" +
		"for i in $(seq 600); do bin/spillwayctl pools >/dev/null 2>&1 && break; sleep 0.1; done\n" + after + "wait\n"
	out := s.run(script)
	require.Contains(s, out, "linux-overflow")
	require.Contains(s, out, "gpu", "what train-model lacks")
}

func playExplain(s *stage, blocks []string) {
	f := s.serve(s.linux(""))
	f.job("4711", "true", "pending")
	require.Contains(s, f.run(blocks[0]), "full", "no instance, and none that could be launched")
}

func playCoordinator(s *stage, blocks []string) {
	f := s.serve(s.linux(""))
	out := s.run(strings.ReplaceAll(blocks[0], "127.0.0.1:7701", f.api))
	require.Contains(s, out, "coordinator.PoolCoordinator.PollJob")
	require.Contains(s, out, "nvidia-smi", "the job was given out")
	s.awaits("spillwayctl jobs show 1", `state +completed`)
}

// playPoolsByHand registers a pool and takes it back.
func playPoolsByHand(s *stage, blocks []string) {
	s.serve(s.linux(""))
	require.Contains(s, s.run(blocks[0]), "gpu")
}

func playAdmission(s *stage, blocks []string) {
	sources, err := filepath.Abs("..")
	require.NoError(s, err)
	require.NoError(s, os.Symlink(filepath.Join(sources, "examples"), s.path("examples")))
	name := regexp.MustCompile(`name: (\S+) +# every job`).FindStringSubmatch(read(s.T, "admission.md"))
	require.NotNil(s, name, "the page has a controller of every job")
	f := s.serve(s.linux("admission: {controllers: [{name: cel}]}\n"))
	build, connect, found := strings.Cut(blocks[0], "\n")
	require.True(s, found)
	s.run(build)
	tls := " -ca-file ca.crt -token-file token"
	require.Contains(s, connect, tls, "the flags are tried by cmd/controlplane with TLS")
	s.start("exec " + strings.NewReplacer("spillway.example.com:7701", f.api, tls, "").Replace(connect))
	s.awaits("spillwayctl admission status", `(?m)^cel +\S.*1`)
	f.agent("--token-file runner-token --plaintext")
	f.job("first", "true", "completed")
	require.Contains(s, s.run(strings.ReplaceAll(blocks[1], "JOB", "first")), "admitted")
}

// lines are the commands of a block.
func lines(block string) (all []string) {
	for line := range strings.Lines(strings.ReplaceAll(block, "\\\n", " ")) {
		if line = strings.TrimSpace(line); line != "" {
			all = append(all, line)
		}
	}
	return all
}

func playDebug(s *stage, blocks []string) {
	s.write("token", "a-token-of-somebody-on-call")
	s.env = append(s.env, "SPILLWAY_TOKEN_FILE=token")
	f := s.serve(s.linux("access: [{name: on-call, token: {file: " + s.path("token") + "}, roles: [read, push, debug]}]\n"))
	f.agent("--token-file runner-token --plaintext --debug on")
	f.job("1234", `echo built > build.log; sleep 600`, "running")
	f.awaits("spillwayctl job exec 1234 --tty off -- cat build.log", "built")
	ports := []int{peertest.FreePort(s.T), peertest.FreePort(s.T)}
	here := strings.NewReplacer("8080 ", fmt.Sprintf("8080:%d ", ports[0]), "5432:15432", fmt.Sprintf("5432:%d", ports[1]), "/tmp/", s.dir+"/")
	for _, line := range lines(blocks[0]) {
		switch {
		case strings.Contains(line, "port-forward"):
			s.start("exec " + here.Replace(line))
			for _, port := range ports {
				s.reaches("tcp", fmt.Sprintf("127.0.0.1:%d", port))
			}
		case strings.Contains(line, "job socket"):
			s.start("exec " + here.Replace(line))
			s.reaches("unix", s.path("step-runner"))
		default:
			s.run(line + "</dev/null")
		}
	}
}

// reaches waits until somebody listens.
func (s *stage) reaches(network, address string) {
	s.Helper()
	require.Eventually(s, func() bool {
		conn, err := net.Dial(network, address)
		if err != nil {
			return false
		}
		return conn.Close() == nil
	}, patience, poll, "%s", address)
}

func playQuarantine(s *stage, blocks []string) {
	f := s.serve(s.linux(""))
	machine := f.agent("--token-file runner-token --plaintext")
	s.write("job.jsonl", `{"id": "breaks", "tags": ["linux"], "script": "sleep 600", "max_attempts": 1}`)
	s.run("spillwayctl jobs submit job.jsonl")
	s.awaits("spillwayctl jobs show breaks", `state +running`)
	require.NoError(s, machine.cmd.Process.Kill())
	s.awaits("spillwayctl jobs list --quarantined", `breaks`)
	out := s.run(strings.ReplaceAll(blocks[0], "retry ID", "retry breaks"))
	require.Contains(s, out, "breaks")
	s.awaits("spillwayctl jobs show breaks", `state +pending`)
}
