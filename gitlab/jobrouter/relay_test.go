package jobrouter

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

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
}

// quickLeases make a takeover take a moment.
func quickLeases(o *Options, _ *stand) {
	o.LeaseTTL, o.RenewEvery, o.PollEvery = 3*time.Second, 200*time.Millisecond, 20*time.Millisecond
	o.Dice = nil
}

func newCrew(t *testing.T, n int, sets ...set) *crew {
	t.Helper()
	c := &crew{t: t, gitlab: newFakeGitLab(), book: newFakeBook(), leases: newFakeLeases()}
	for i := range n {
		c.replicas = append(c.replicas, c.join(string(rune('a'+i)), sets...))
	}
	return c
}

func (c *crew) join(name string, sets ...set) *served {
	lis := loopback(c.t)
	all := append([]set{quickLeases, func(o *Options, s *stand) {
		o.Replica, o.Advertise = name, lis.Addr().String()
		o.Dial = []grpc.DialOption{grpc.WithTransportCredentials(insecure.NewCredentials())}
		s.gitlab, s.book, s.leases = c.gitlab, c.book, c.leases
	}}, sets...)
	s := &served{stand: newStand(c.t, all...), urls: map[string]string{"grpc": "grpc://" + lis.Addr().String()}}
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

// withHolder is two replicas, the first of which polls, with a machine at each.
func withHolder(t *testing.T) (c *crew, a, b *served, atA, atB <-chan reply) {
	t.Helper()
	c = newCrew(t, 2)
	a, b = c.replicas[0], c.replicas[1]
	atA = a.getJobSoon(a.connect("grpc", testToken), "m-a")
	c.holds(a)
	atB = b.getJobSoon(b.connect("grpc", testToken), "m-b")
	require.Eventually(t, func() bool { return a.desk.waiting.Load() == 2 }, soon, often, "the question is passed on")
	return c, a, b, atA, atB
}

func TestOneReplicaAsksForAll(t *testing.T) {
	c, a, _, atA, atB := withHolder(t)
	c.gitlab.enqueue(1, 2)
	got := map[string]bool{}
	for _, r := range []reply{a.reply(atA), a.reply(atB)} {
		require.NoError(t, r.err)
		got[string(r.body)] = true
	}
	require.Equal(t, map[string]bool{string(jobBody(1)): true, string(jobBody(2)): true}, got)
	for _, q := range c.gitlab.questions() {
		require.Equal(t, "a", q.replica)
	}
	require.Eventually(t, func() bool { return a.log.count("given") == 2 }, soon, often, "the machine's replica tells")
	require.NotZero(t, countContaining(a.log, "Relayed:true"))
}

func TestARelayedQuestionHandsTheQueuesStateBack(t *testing.T) {
	c := newCrew(t, 2, func(o *Options, _ *stand) { o.LongPoll = 2 * time.Second })
	a, b := c.replicas[0], c.replicas[1]
	a.getJobSoon(a.connect("grpc", testToken), "m-a")
	c.holds(a)
	r := b.reply(b.getJobSoon(b.connect("grpc", testToken), "m-b"))
	require.NoError(t, r.err)
	require.Empty(t, r.body)
	require.Equal(t, []string{"v0"}, r.header.Get("x-gitlab-last-update"))
}

func TestARelayedRunnerThatStopsWhileItsJobComesLosesNothing(t *testing.T) {
	c := newCrew(t, 2)
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
}

func TestTheOtherReplicaTakesOverWhileTheCallStaysOpen(t *testing.T) {
	c, a, b, _, atB := withHolder(t)
	a.server.Stop() // as a process that dies: nothing is given back
	c.leases.failFor(func(holder string) bool { return holder == a.desk.opt.holder() })
	died := time.Now()
	c.holds(b)
	c.gitlab.enqueue(1)
	r := b.reply(atB)
	require.NoError(t, r.err)
	require.Equal(t, string(jobBody(1)), string(r.body))
	var lastOfA, firstOfB time.Time
	for _, q := range c.gitlab.questions() {
		if q.replica == "a" {
			lastOfA = q.at
		} else if firstOfB.IsZero() {
			firstOfB = q.at
		}
	}
	require.True(t, firstOfB.After(lastOfA), "never both within a lease")
	require.Less(t, firstOfB.Sub(died), soon)
}

func TestAReplicaThatDrainsHandsThePollingOn(t *testing.T) {
	c, a, b, atA, atB := withHolder(t)
	require.NoError(t, a.desk.Drain(t.Context()))
	require.Equal(t, codes.Unimplemented, status.Code(a.reply(atA).err), "its own runners are sent to GitLab")
	c.holds(b)
	c.gitlab.enqueue(1)
	r := b.reply(atB)
	require.NoError(t, r.err, "the other's are not")
	require.Equal(t, string(jobBody(1)), string(r.body))
}

func TestATokenThatGitLabRefusesIsRefusedThroughARelayToo(t *testing.T) {
	c, a, _, atA, atB := withHolder(t)
	c.gitlab.answerWith(forbidden)
	require.Equal(t, codes.Unimplemented, status.Code(a.reply(atA).err))
	require.Equal(t, codes.Unimplemented, status.Code(a.reply(atB).err))
}

// A replica that has lost the token still has the jobs that it got before.
func TestAJobKeptHereGoesToARunnerHereThoughAnotherPolls(t *testing.T) {
	c := newCrew(t, 2)
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
}

// A question that was passed on isn't passed on again: who asked looks who polls.
func TestRelaysMakeNoLoop(t *testing.T) {
	_, _, b, _, _ := withHolder(t)
	ctx := metadata.AppendToOutgoingContext(t.Context(), metaLimit, "60000")
	stream, err := b.connect("grpc", testToken).NewStream(ctx, &relayStream, "/"+relayService+"/"+relayMethod)
	require.NoError(t, err)
	require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: requestBody("m-x", "", runnerFeatures())}))
	require.Equal(t, codes.FailedPrecondition, status.Code(stream.RecvMsg(new(jobrouterpb.GetJobResponse))))
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
			c := newCrew(t, 1)
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
	}
}

func TestAWithdrawnQuestionIsAnsweredAtOnce(t *testing.T) {
	s := newCrew(t, 1).replicas[0]
	stream := relayOf(t, s, "m-x")
	require.Eventually(t, func() bool { return s.desk.waiting.Load() == 1 }, soon, often)
	require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: []byte("something unknown")}))
	require.NoError(t, stream.SendMsg(&jobrouterpb.GetJobRequest{JobRequest: []byte(wordWithdraw)}))
	m := new(jobrouterpb.GetJobResponse)
	require.NoError(t, stream.RecvMsg(m))
	require.Empty(t, m.GetJobResponse())
}

func TestAHolderWithoutAnAddressIsADegradation(t *testing.T) {
	c := newCrew(t, 2, func(o *Options, _ *stand) {
		if o.Replica == "a" {
			o.Advertise = ""
		}
	})
	a, b := c.replicas[0], c.replicas[1]
	a.getJobSoon(a.connect("grpc", testToken), "m-a")
	c.holds(a)
	b.getJobSoon(b.connect("grpc", testToken), "m-b")
	require.Eventually(t, func() bool { return b.log.has("degraded") }, soon, often)
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
