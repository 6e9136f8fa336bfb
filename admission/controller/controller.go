// Package controller is what an admission controller written in Go links: it connects
// to control planes, stays connected, and has a function asked about each job.
//
// A controller in another language needs the protocol only: see
// proto/spillway/admission/v1.
package controller

import (
	"cmp"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/spillway-ci/spillway/internal/tlsfiles"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

const (
	// retryFirst and retryMost bound the wait before a controller connects again.
	retryFirst = 100 * time.Millisecond
	retryMost  = 15 * time.Second
	// maxReviewBytes bounds one review [bytes]: a single job may be larger than the
	// megabyte that a control plane keeps to.
	maxReviewBytes = 8 << 20
)

// Judge says whether a job may run. The reason is a sentence for the job's owner; it is
// needed to refuse. It is called for one job at a time on each connection.
type Judge func(ctx context.Context, job *admissionv1.ReviewedJob) (allow bool, reason string)

// Options say where to connect, as whom. A zero means the default.
type Options struct {
	// Addrs are the api addresses of control planes, HOST:PORT: one instance connects to
	// each of them. To connect to one of several is enough, but then each controller must
	// be somewhere.
	Addrs      []string
	Controller string // its name in their configuration
	Instance   string // unique among its instances; default: host name and process
	Version    string
	MaxBatch   int // jobs in one review; 0 = as configured there

	CAFile, CertFile, KeyFile string // TLS; without any of them, plaintext
	TokenFile                 string // of an entry with the role admit
	// Told is told of every connection and why it ended; nil: nobody is.
	Told func(addr string, err error)
}

// Flags adds the options to a command line.
func (o *Options) Flags(flags *flag.FlagSet) {
	flags.Func("addr", "api address of a control plane, HOST:PORT; may be given several times", func(s string) error {
		o.Addrs = append(o.Addrs, s)
		return nil
	})
	flags.StringVar(&o.Controller, "controller", o.Controller, "name of this controller in admission.controllers")
	flags.StringVar(&o.Instance, "instance", "", "name of this instance (default: host name and process)")
	flags.IntVar(&o.MaxBatch, "max-batch", 0, "most jobs in one review (default: as configured)")
	flags.StringVar(&o.CAFile, "ca-file", "", "trust certificates of this authority; turns TLS on")
	flags.StringVar(&o.CertFile, "cert-file", "", "client certificate; turns TLS on")
	flags.StringVar(&o.KeyFile, "key-file", "", "key of the client certificate")
	flags.StringVar(&o.TokenFile, "token-file", "", "file with a token of the access section, with the role admit")
}

// Run connects and judges until ctx ends. It returns an error only if it can't begin:
// whatever ends a connection, it connects again.
func Run(ctx context.Context, o Options, judge Judge) error {
	if len(o.Addrs) == 0 || o.Controller == "" {
		return errors.New("name the controller and the address of at least one control plane")
	}
	creds, err := o.credentials()
	if err != nil {
		return err
	}
	host, _ := os.Hostname() // the process number tells instances of one host apart
	o.Instance = cmp.Or(o.Instance, fmt.Sprintf("%s-%d", cmp.Or(host, "controller"), os.Getpid()))
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReviewBytes)),
		// A control plane that has gone without a word is noticed.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 20 * time.Second, Timeout: 10 * time.Second}),
	}
	if o.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(token{o.TokenFile, creds.Info().SecurityProtocol == "tls"}))
	}
	var running sync.WaitGroup
	defer running.Wait()
	for _, addr := range o.Addrs {
		conn, err := grpc.NewClient(addr, options...)
		if err != nil {
			return fmt.Errorf("address %q: %w", addr, err)
		}
		running.Go(func() {
			defer func() { _ = conn.Close() }()
			o.stay(ctx, conn, addr, judge)
		})
	}
	<-ctx.Done()
	return nil
}

func (o *Options) credentials() (credentials.TransportCredentials, error) {
	if o.CAFile == "" && o.CertFile == "" {
		return insecure.NewCredentials(), nil
	}
	files, err := tlsfiles.Open(tlsfiles.Files{Cert: o.CertFile, Key: o.KeyFile, CA: o.CAFile}, tlsfiles.Options{})
	if err != nil {
		return nil, err
	}
	return tlsfiles.Credentials(files.Client, ""), nil
}

// stay connects again and again, sooner after a connection that was good.
func (o *Options) stay(ctx context.Context, conn *grpc.ClientConn, addr string, judge Judge) {
	for pause := retryFirst; ctx.Err() == nil; {
		welcome := func() {
			pause = retryFirst
			o.tell(addr, nil)
		}
		err := o.converse(ctx, conn, welcome, judge)
		if ctx.Err() != nil {
			return
		}
		o.tell(addr, err)
		select {
		case <-ctx.Done():
		case <-time.After(pause):
		}
		pause = min(2*pause, retryMost)
	}
}

func (o *Options) tell(addr string, err error) {
	if o.Told != nil {
		o.Told(addr, err)
	}
}

func (o *Options) converse(ctx context.Context, conn *grpc.ClientConn, welcome func(), judge Judge) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	stream, err := admissionv1.NewAdmissionServiceClient(conn).Connect(ctx)
	if err != nil {
		return err
	}
	// When the stream has ended, Send says EOF and Recv says why.
	_ = stream.Send(&admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Hello{Hello: &admissionv1.Hello{
		Controller: o.Controller, Instance: o.Instance, MaxBatch: int32(o.MaxBatch), Version: o.Version,
	}}})
	for {
		m, err := stream.Recv()
		if err != nil {
			return err
		}
		if m.GetWelcome() != nil {
			welcome()
		}
		if review := m.GetReview(); review != nil {
			_ = stream.Send(verdicts(ctx, review, judge))
		}
	}
}

func verdicts(ctx context.Context, review *admissionv1.Review, judge Judge) *admissionv1.ControllerMessage {
	v := &admissionv1.Verdicts{BatchId: review.GetBatchId()}
	for _, job := range review.GetJobs() {
		allow, reason := judge(ctx, job)
		v.Verdicts = append(v.Verdicts, &admissionv1.Verdict{JobId: job.GetJobId(), Allow: allow, Reason: reason})
	}
	return &admissionv1.ControllerMessage{Message: &admissionv1.ControllerMessage_Verdicts{Verdicts: v}}
}

// token is the bearer token in a file, read anew for each connection.
type token struct {
	file string
	tls  bool
}

func (t token) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	b, err := os.ReadFile(t.file)
	if err != nil {
		return nil, err
	}
	return map[string]string{"authorization": "Bearer " + strings.TrimSpace(string(b))}, nil
}

// RequireTransportSecurity: a token is sent in plaintext only where TLS was not asked
// for, which a control plane allows on loopback addresses alone.
func (t token) RequireTransportSecurity() bool { return t.tls }
