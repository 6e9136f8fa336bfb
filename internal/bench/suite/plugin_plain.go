package suite

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"fmt"
	"io"
	"math/big"
	"net"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/spillway-ci/spillway/internal/bench/child"
	pluginsdk "github.com/spillway-ci/spillway/plugin-sdk"
	"github.com/spillway-ci/spillway/providers/fake"
)

// plainRole is the same provider behind grpc-go alone.
const plainRole = "plain-provider"

// plainName is whom the certificates of the plain provider are for.
const plainName = "localhost"

// plainProvider is the parent's end.
type plainProvider struct {
	process  *child.Process
	dir      string
	conn     *grpc.ClientConn
	provider pluginsdk.Provider
}

// startPlainProvider starts the provider; with TLS, both ends show a certificate that
// they made themselves and the other was told of, as go-plugin's AutoMTLS has it.
func startPlainProvider(ctx context.Context, secure bool) (_ *plainProvider, err error) {
	p := &plainProvider{}
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p.dir, err = os.MkdirTemp("", "swb"); err != nil { // short: a socket's path has 107 bytes
		return nil, err
	}
	socket := filepath.Join(p.dir, "s")
	security, word := insecure.NewCredentials(), "-"
	var own tls.Certificate
	if secure {
		if own, err = selfSigned(); err != nil {
			return nil, err
		}
		word = base64.StdEncoding.EncodeToString(own.Certificate[0])
	}
	if p.process, err = child.Start(plainRole, socket, word); err != nil {
		return nil, err
	}
	theirs, err := p.process.Hear(ctx, "ready")
	if err != nil {
		return nil, err
	}
	if secure {
		if security, err = mutual(own, theirs, false); err != nil {
			return nil, err
		}
	}
	if p.conn, err = grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(security)); err != nil {
		return nil, err
	}
	p.provider = pluginsdk.NewClient(p.conn)
	return p, p.provider.Configure(ctx, fakeConfig())
}

func (p *plainProvider) status(ctx context.Context) error {
	answers, err := p.provider.Status(ctx, []string{fakeGroup})
	if err != nil {
		return err
	}
	return answers[0].Err
}

func (p *plainProvider) stop() {
	if p.conn != nil {
		_ = p.conn.Close()
	}
	if p.process != nil {
		p.process.Stop()
	}
	_ = os.RemoveAll(p.dir)
}

// runPlainProvider is the child: SOCKET, and the client's certificate or "-".
func runPlainProvider(args []string) error {
	if len(args) != 2 {
		return fmt.Errorf("%s needs a socket and a certificate", plainRole)
	}
	lis, err := net.Listen("unix", args[0])
	if err != nil {
		return err
	}
	var opts []grpc.ServerOption
	word := "-"
	if args[1] != "-" {
		own, err := selfSigned()
		if err != nil {
			return err
		}
		security, err := mutual(own, args[1], true)
		if err != nil {
			return err
		}
		opts = append(opts, grpc.Creds(security))
		word = base64.StdEncoding.EncodeToString(own.Certificate[0])
	}
	server := grpc.NewServer(opts...)
	pluginsdk.Register(server, fake.New())
	go func() { _ = server.Serve(lis) }() // ends with Stop
	defer server.Stop()
	child.Answer("ready", word)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// mutual trusts exactly one certificate of the other end.
func mutual(own tls.Certificate, theirs string, server bool) (credentials.TransportCredentials, error) {
	der, err := base64.StdEncoding.DecodeString(theirs)
	if err != nil {
		return nil, err
	}
	other, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, err
	}
	pool := x509.NewCertPool()
	pool.AddCert(other)
	c := &tls.Config{Certificates: []tls.Certificate{own}, MinVersion: tls.VersionTLS13}
	if server {
		c.ClientAuth, c.ClientCAs = tls.RequireAndVerifyClientCert, pool
	} else {
		c.RootCAs, c.ServerName = pool, plainName
	}
	return credentials.NewTLS(c), nil
}

func selfSigned() (tls.Certificate, error) {
	key, err := ecdsa.GenerateKey(elliptic.P521(), rand.Reader) // as go-plugin does
	if err != nil {
		return tls.Certificate{}, err
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: plainName}, DNSNames: []string{plainName},
		NotBefore: time.Now().Add(-time.Minute), NotAfter: time.Now().Add(time.Hour),
		KeyUsage:              x509.KeyUsageDigitalSignature | x509.KeyUsageCertSign,
		ExtKeyUsage:           []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
		IsCA:                  true,
		BasicConstraintsValid: true,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return tls.Certificate{}, err
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}, nil
}
