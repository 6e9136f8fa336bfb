package jobrouter

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/spillway-ci/spillway/gitlab"
	jobrouterpb "github.com/spillway-ci/spillway/proto/gitlab/jobrouter"
)

// crew is replicas with one GitLab, one book and one set of leases.
type crew struct {
	t        *testing.T
	gitlab   *fakeGitLab
	book     *fakeBook
	leases   *fakeLeases
	replicas []*served
	wires    wires // nil: they are reached over the network
}

// wires are what takes the place of the network in a bubble, where nothing may wait for
// anything outside: by address.
type wires map[string]*bufconn.Listener

func (w wires) dial(ctx context.Context, address string) (net.Conn, error) {
	wire, ok := w[address]
	if !ok {
		return nil, errAway
	}
	return wire.DialContext(ctx)
}

// quickLeases make a takeover take a moment.
func quickLeases(o *Options, _ *stand) {
	o.LeaseTTL, o.RenewEvery, o.PollEvery = 3*time.Second, 200*time.Millisecond, 20*time.Millisecond
	o.Dice = nil
}

// inBubble is n replicas in a bubble: their leases end when the test lets time pass, and
// not where the machine that it runs on is busy.
func inBubble(t *testing.T, n int, f func(t *testing.T, c *crew), sets ...set) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		c := newCrew(t)
		c.wires = wires{}
		c.grow(n, sets...)
		f(t, c)
	})
}

func newCrew(t *testing.T) *crew {
	t.Helper()
	return &crew{t: t, gitlab: newFakeGitLab(), book: newFakeBook(), leases: newFakeLeases()}
}

func (c *crew) grow(n int, sets ...set) {
	c.t.Helper()
	for i := range n {
		c.replicas = append(c.replicas, c.join(string(rune('a'+i)), sets...))
	}
}

// listen is where a replica is reached.
func (c *crew) listen(name string) (lis net.Listener, address string, dial []grpc.DialOption) {
	c.t.Helper()
	dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
	if c.wires == nil {
		lis = loopback(c.t)
		return lis, lis.Addr().String(), dial
	}
	address, wire := name+".test:1", bufconn.Listen(64<<10)
	c.wires[address] = wire
	return wire, address, append(dial, grpc.WithContextDialer(c.wires.dial))
}

func (c *crew) join(name string, sets ...set) *served {
	lis, address, dial := c.listen(name)
	all := append([]set{quickLeases, func(o *Options, s *stand) {
		o.Replica, o.Advertise, o.Dial = name, address, dial
		s.gitlab, s.book, s.leases = c.gitlab, c.book, c.leases
	}}, sets...)
	s := &served{stand: newStand(c.t, all...), dial: dial, urls: map[string]string{"grpc": "grpc://" + address}}
	s.server = grpc.NewServer(ServerOptions(nil)...)
	NewService(s.desk).Register(s.server)
	go func() { _ = s.server.Serve(lis) }() // it ends with Stop
	c.t.Cleanup(s.server.Stop)
	return s
}

// holds waits until the replica polls the token.
func (c *crew) holds(s *served) {
	c.t.Helper()
	name := leaseName(s.desk.opt.Tokens.Hashes()[0])
	require.Eventually(c.t, func() bool { return c.leases.holder(name) == s.desk.opt.holder() }, soon, often)
}

// pair is two replicas, the first of which polls, with a machine at each.
type pair struct {
	*crew
	a, b     *served
	atA, atB <-chan reply
}

func withHolder(t *testing.T, f func(t *testing.T, p *pair)) {
	t.Helper()
	inBubble(t, 2, func(t *testing.T, c *crew) {
		p := &pair{crew: c, a: c.replicas[0], b: c.replicas[1]}
		p.atA = p.a.getJobSoon(p.a.connect("grpc", testToken), "m-a")
		c.holds(p.a)
		p.atB = p.b.getJobSoon(p.b.connect("grpc", testToken), "m-b")
		require.Eventually(t, func() bool { return p.a.desk.waiting.Load() == 2 }, soon, often, "the question is passed on")
		f(t, p)
	})
}

func TestOneReplicaAsksForAll(t *testing.T) {
	withHolder(t, func(t *testing.T, p *pair) {
		p.gitlab.enqueue(1, 2)
		got := map[string]bool{}
		for _, r := range []reply{p.a.reply(p.atA), p.a.reply(p.atB)} {
			require.NoError(t, r.err)
			got[string(r.body)] = true
		}
		require.Equal(t, map[string]bool{string(jobBody(1)): true, string(jobBody(2)): true}, got)
		for _, q := range p.gitlab.questions() {
			require.Equal(t, "a", q.replica)
		}
		require.Eventually(t, func() bool { return p.a.log.count("given") == 2 }, soon, often, "the machine's replica tells")
		require.NotZero(t, countContaining(p.a.log, "Relayed:true"))
	})
}

func TestARelayedQuestionHandsTheQueuesStateBack(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *crew) {
		a, b := c.replicas[0], c.replicas[1]
		a.getJobSoon(a.connect("grpc", testToken), "m-a")
		c.holds(a)
		r := b.reply(b.getJobSoon(b.connect("grpc", testToken), "m-b"))
		require.NoError(t, r.err)
		require.Empty(t, r.body)
		require.Equal(t, []string{"v0"}, r.header.Get("x-gitlab-last-update"))
	}, func(o *Options, _ *stand) { o.LongPoll = 2 * time.Second })
}

func TestARelayedRunnerThatStopsWhileItsJobComesLosesNothing(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *crew) {
		a, b := c.replicas[0], c.replicas[1]
		hold := make(chan struct{})
		c.gitlab.holdUntil(hold)
		first, stop := context.WithCancel(t.Context())
		go func() { _ = getJob(first, a.connect("grpc", testToken), requestBody("m-a", "", runnerFeatures())) }()
		c.holds(a)
		stop() // so that only the other one waits
		require.Eventually(t, func() bool { return a.desk.waiting.Load() == 0 }, soon, often)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = getJob(ctx, b.connect("grpc", testToken), requestBody("m-b", "", runnerFeatures())) }()
		require.Eventually(t, func() bool { return a.desk.waiting.Load() == 1 }, soon, often)
		c.gitlab.enqueue(1)
		cancel()
		close(hold)
		require.Eventually(t, func() bool { return a.desk.waiting.Load()+b.desk.waiting.Load() == 0 }, soon, often)
		late := b.getJobSoon(b.connect("grpc", testToken), "m-late")
		// Written before the end of the call was heard of: nobody but GitLab can see that
		// such a job was not taken. Otherwise it goes to whoever comes next.
		require.Eventually(t, func() bool { return len(late) > 0 || a.log.has("given 1 to m-b") }, soon, often)
		require.Zero(t, a.log.count("left"))
		if len(late) > 0 {
			require.Equal(t, string(jobBody(1)), string(a.reply(late).body))
		}
	})
}

func TestTheOtherReplicaTakesOverWhileTheCallStaysOpen(t *testing.T) {
	withHolder(t, func(t *testing.T, p *pair) {
		p.a.server.Stop() // as a process that dies: nothing is given back
		p.leases.failFor(func(holder string) bool { return holder == p.a.desk.opt.holder() })
		died := time.Now()
		p.holds(p.b)
		p.gitlab.enqueue(1)
		r := p.b.reply(p.atB)
		require.NoError(t, r.err)
		require.Equal(t, string(jobBody(1)), string(r.body))
		var lastOfA, firstOfB time.Time
		for _, q := range p.gitlab.questions() {
			if q.replica == "a" {
				lastOfA = q.at
			} else if firstOfB.IsZero() {
				firstOfB = q.at
			}
		}
		require.True(t, firstOfB.After(lastOfA), "never both within a lease")
		require.Less(t, firstOfB.Sub(died), p.b.desk.opt.LeaseTTL+2*leaseRetry)
	})
}

func TestAReplicaThatDrainsHandsThePollingOn(t *testing.T) {
	withHolder(t, func(t *testing.T, p *pair) {
		require.NoError(t, p.a.desk.Drain(t.Context()))
		require.Equal(t, codes.Unimplemented, status.Code(p.a.reply(p.atA).err), "its own runners are sent to GitLab")
		p.holds(p.b)
		p.gitlab.enqueue(1)
		r := p.b.reply(p.atB)
		require.NoError(t, r.err, "the other's are not")
		require.Equal(t, string(jobBody(1)), string(r.body))
	})
}

func TestATokenThatGitLabRefusesIsRefusedThroughARelayToo(t *testing.T) {
	withHolder(t, func(t *testing.T, p *pair) {
		p.gitlab.answerWith(forbidden)
		require.Equal(t, codes.Unimplemented, status.Code(p.a.reply(p.atA).err))
		require.Equal(t, codes.Unimplemented, status.Code(p.a.reply(p.atB).err))
	})
}

// A replica that has lost the token still has the jobs that it got before.
func TestAJobKeptHereGoesToARunnerHereThoughAnotherPolls(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *crew) {
		a, b := c.replicas[0], c.replicas[1]
		hold := make(chan struct{})
		c.gitlab.holdUntil(hold)
		ctx, cancel := context.WithCancel(t.Context())
		go func() { _ = getJob(ctx, a.connect("grpc", testToken), requestBody("m-a", "", runnerFeatures())) }()
		require.Eventually(t, func() bool { return len(c.gitlab.questions()) == 1 }, soon, often)
		c.leases.failFor(func(holder string) bool { return holder == a.desk.opt.holder() })
		c.gitlab.answerWith(func(q asked) (gitlab.JobAnswer, error) {
			if q.replica != "a" {
				return gitlab.JobAnswer{Status: 204}, nil
			}
			return gitlab.JobAnswer{}, nil
		})
		b.getJobSoon(b.connect("grpc", testToken), "m-b")
		c.holds(b)
		cancel()
		require.Eventually(t, func() bool { return a.desk.waiting.Load() == 0 }, soon, often)
		c.gitlab.enqueue(1)
		close(hold) // the question that a asked while the token was its own brings the job
		require.Eventually(t, func() bool { return len(a.desk.Held()) == 1 }, soon, often)
		c.leases.failFor(nil)
		late := a.reply(a.getJobSoon(a.connect("grpc", testToken), "m-late"))
		require.Equal(t, string(jobBody(1)), string(late.body))
	})
}

// A question that was passed on isn't passed on again: who asked looks who polls.
func TestRelaysMakeNoLoop(t *testing.T) {
	withHolder(t, func(t *testing.T, p *pair) {
		ctx := metadata.AppendToOutgoingContext(t.Context(), metaLimit, "60000")
		stream, err := p.b.connect("grpc", testToken).NewStream(ctx, &relayStream, "/"+relayService+"/"+relayMethod)
		require.NoError(t, err)
		require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: requestBody("m-x", "", runnerFeatures())}))
		require.Equal(t, codes.FailedPrecondition, status.Code(stream.RecvMsg(new(jobrouterpb.GetJobResponse))))
	})
}

// relayOf opens a question as another replica does.
func relayOf(t *testing.T, s *served, system string) grpc.ClientStream {
	t.Helper()
	stream, err := s.connect("grpc", testToken).NewStream(t.Context(), &relayStream, "/"+relayService+"/"+relayMethod)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: requestBody(system, "", runnerFeatures())}))
	return stream
}

func TestWhatTheOtherReplicaSaysOfItsJob(t *testing.T) {
	for word, want := range map[string]string{
		wordDelivered: "given 1 to m-x", wordReturned: "kept 1", wordEnded: "kept 1", "": "left 1: the replica that was to pass it on",
	} {
		t.Run("says "+word, func(t *testing.T) {
			inBubble(t, 1, func(t *testing.T, c *crew) {
				s := c.replicas[0]
				c.gitlab.enqueue(1)
				stream := relayOf(t, s, "m-x")
				m := new(jobrouterpb.GetJobResponse)
				require.NoError(t, stream.RecvMsg(m))
				require.Equal(t, string(jobBody(1)), string(m.GetJobResponse()))
				if word == "" {
					require.NoError(t, stream.CloseSend())
				} else {
					require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: []byte(word)}))
				}
				require.Eventually(t, func() bool { return s.log.has(want) }, soon, often, "%v", s.log.all())
				require.Equal(t, word == wordEnded, len(c.gitlab.keeps()) > 0, "GitLab is asked where the machine may have it")
				_, booked := c.book.has(1)
				require.Equal(t, word == wordDelivered || word == "", booked, "in doubt it stays booked")
			})
		})
	}
}

func TestAWithdrawnQuestionIsAnsweredAtOnce(t *testing.T) {
	inBubble(t, 1, func(t *testing.T, c *crew) {
		s := c.replicas[0]
		stream := relayOf(t, s, "m-x")
		require.Eventually(t, func() bool { return s.desk.waiting.Load() == 1 }, soon, often)
		asked := time.Now()
		require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: []byte("something unknown")}))
		require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: []byte(wordWithdraw)}))
		m := new(jobrouterpb.GetJobResponse)
		require.NoError(t, stream.RecvMsg(m))
		require.Empty(t, m.GetJobResponse())
		require.Less(t, time.Since(asked), withdrawGrace)
	})
}

func TestAHolderWithoutAnAddressIsADegradation(t *testing.T) {
	inBubble(t, 2, func(t *testing.T, c *crew) {
		a, b := c.replicas[0], c.replicas[1]
		a.getJobSoon(a.connect("grpc", testToken), "m-a")
		c.holds(a)
		b.getJobSoon(b.connect("grpc", testToken), "m-b")
		require.Eventually(t, func() bool { return b.log.has("degraded") }, soon, often)
	}, func(o *Options, _ *stand) {
		if o.Replica == "a" {
			o.Advertise = ""
		}
	})
}

func TestPeersAreBounded(t *testing.T) {
	p := newPeers([]grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())})
	for i := range 2 * maxPeers {
		_, err := p.dial("127.0.0.1:" + string(jobID(int64(1+i))))
		require.NoError(t, err)
	}
	require.Len(t, p.mu.conns, maxPeers)
	p.close()
	_, err := p.dial("127.0.0.1:1")
	require.Error(t, err)
}
