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
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/keepalive"

	"github.com/spillway-ci/spillway/admission"
	"github.com/spillway-ci/spillway/internal/tlsfiles"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

const (
	// maxReviewBytes bounds one review [bytes]: a single job may be larger than the
	// megabyte that a control plane keeps to.
	maxReviewBytes = 8 << 20
	// dialTimeout bounds one attempt to reach a control plane.
	dialTimeout = 5 * time.Second
	// silentAfter and silentFor: a control plane that says nothing for the first is asked
	// whether it is there, and given up after the second.
	silentAfter = 20 * time.Second
	silentFor   = 10 * time.Second
)

// Judge says whether a job may run. The reason is a sentence for the job's owner; it is
// needed to refuse. It is called for one job at a time on each connection. ctx ends with
// the deadline of the review and with the connection: what is said after that does not
// count, and is not sent.
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
	// Told is told of every connection, and why it ended or was not made; nil: nobody is.
	// It may be called from several goroutines.
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
	if err := o.validate(); err != nil {
		return err
	}
	host, _ := os.Hostname() // the process number tells instances of one host apart
	o.Instance = cmp.Or(o.Instance, fmt.Sprintf("%s-%d", cmp.Or(host, "controller"), os.Getpid()))
	options, err := o.dialOptions()
	if err != nil {
		return err
	}
	conns := make([]*grpc.ClientConn, len(o.Addrs))
	for i, addr := range o.Addrs { // all of them, before any of them is used
		if conns[i], err = grpc.NewClient(addr, options...); err != nil {
			return fmt.Errorf("address %q: %w", addr, err)
		}
		defer func() { _ = conns[i].Close() }()
	}
	var running sync.WaitGroup
	for i, addr := range o.Addrs {
		running.Go(func() { o.stay(ctx, conns[i], addr, judge) })
	}
	running.Wait()
	return nil
}

func (o *Options) validate() error {
	switch {
	case len(o.Addrs) == 0 || o.Controller == "":
		return errors.New("name the controller and the address of at least one control plane")
	case o.MaxBatch < 0 || o.MaxBatch > admission.MaxBatch:
		return fmt.Errorf("%d jobs in one review: use 0 to %d", o.MaxBatch, admission.MaxBatch)
	}
	for _, addr := range o.Addrs {
		if o.TokenFile != "" && o.plaintext() && !tlsfiles.Loopback(addr) {
			return fmt.Errorf("%s: the token would cross the network in plaintext: use --ca-file, or a loopback address", addr)
		}
	}
	return nil
}

// plaintext reports whether nothing of TLS was asked for.
func (o *Options) plaintext() bool { return o.CAFile == "" && o.CertFile == "" && o.KeyFile == "" }

func (o *Options) dialOptions() ([]grpc.DialOption, error) {
	creds, err := o.credentials()
	if err != nil {
		return nil, err
	}
	options := []grpc.DialOption{
		grpc.WithTransportCredentials(creds), grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReviewBytes)),
		// A control plane that has gone without a word is noticed.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: silentAfter, Timeout: silentFor}),
		// One that was away for long is found again as soon as one that was not: left to
		// itself, grpc waits for up to two minutes.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: retryFirst, Multiplier: 2, Jitter: 0.2, MaxDelay: retryMost},
			MinConnectTimeout: dialTimeout,
		}),
	}
	if o.TokenFile != "" {
		options = append(options, grpc.WithPerRPCCredentials(token{o.TokenFile, creds.Info().SecurityProtocol == "tls"}))
	}
	return options, nil
}

func (o *Options) credentials() (credentials.TransportCredentials, error) {
	if o.plaintext() {
		return insecure.NewCredentials(), nil
	}
	files, err := tlsfiles.Open(tlsfiles.Files{Cert: o.CertFile, Key: o.KeyFile, CA: o.CAFile}, tlsfiles.Options{})
	if err != nil {
		return nil, err
	}
	return tlsfiles.Credentials(files.Client, ""), nil
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

// RequireTransportSecurity: without TLS all addresses are this machine's own.
func (t token) RequireTransportSecurity() bool { return t.tls }
