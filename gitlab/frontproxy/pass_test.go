package frontproxy_test

import (
	"bufio"
	"bytes"
	"compress/gzip"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/spillway-ci/spillway/gitlab/frontproxy"
	"github.com/spillway-ci/spillway/internal/peertest"
)

func TestAddressesAndHeadersArriveAsTheyWere(t *testing.T) {
	got := make(chan *http.Request, 1)
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got <- r
		w.Header().Add("Set-Cookie", "a=1")
		w.Header().Add("Set-Cookie", "b=2")
		w.WriteHeader(http.StatusTeapot)
	}))
	for _, address := range []string{"/group%2Fproject/raw/a%20b?x=%2F&y=;z&private_token=1", "/a//b/../c/", "/%E4%BD%A0?a=b&a=c", "/?;;"} {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.front.URL+"/", http.NoBody)
		require.NoError(t, err)
		request.URL.Opaque = address
		request.Header.Set("X-Forwarded-For", "1.2.3.4")
		request.Header.Set("X-Forwarded-Proto", "https")
		request.Header.Set("X-Forwarded-Host", "evil")
		request.Header.Set("Connection", "X-Hop")
		request.Header.Set("X-Hop", "1")
		request.Header.Set("Authorization", "Bearer x")
		resp, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		_ = resp.Body.Close()
		r := <-got
		require.Equal(t, address, r.RequestURI)
		require.Equal(t, s.gitlab.Listener.Addr().String(), r.Host)
		require.Equal(t, "1.2.3.4, 127.0.0.1", r.Header.Get("X-Forwarded-For"))
		require.Equal(t, "http", r.Header.Get("X-Forwarded-Proto"), "nobody may say so")
		require.Equal(t, s.front.Listener.Addr().String(), r.Header.Get("X-Forwarded-Host"))
		require.Empty(t, r.Header.Get("X-Hop"), "hop by hop")
		require.Equal(t, "Bearer x", r.Header.Get("Authorization"))
		require.Equal(t, http.StatusTeapot, resp.StatusCode)
		require.Equal(t, []string{"a=1", "b=2"}, resp.Header.Values("Set-Cookie"))
	}
}

func TestBehindAnIngressItsWordIsKept(t *testing.T) {
	got := make(chan *http.Request, 1)
	s := newStand(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { got <- r }),
		func(o *frontproxy.Options) { o.TrustForwarded = true })
	s.do(http.MethodGet, "/", "", "X-Forwarded-Proto", "https", "X-Forwarded-Host", "git.example")
	r := <-got
	require.Equal(t, "https", r.Header.Get("X-Forwarded-Proto"))
	require.Equal(t, "git.example", r.Header.Get("X-Forwarded-Host"))
}

func TestCompressedAnswersStayAsTheyAre(t *testing.T) {
	var packed bytes.Buffer
	zip := gzip.NewWriter(&packed)
	_, _ = zip.Write([]byte("text"))
	require.NoError(t, zip.Close())
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "br, gzip", r.Header.Get("Accept-Encoding"))
		w.Header().Set("Content-Encoding", "gzip")
		_, _ = w.Write(packed.Bytes())
	}))
	a := s.do(http.MethodGet, "/", "", "Accept-Encoding", "br, gzip")
	require.Equal(t, packed.String(), a.body)
	require.Equal(t, "gzip", a.header.Get("Content-Encoding"))
}

func TestTrailersPassInBothDirections(t *testing.T) {
	for _, path := range []string{"/any", "/api/v4/jobs/7"} { // the second one is looked at
		s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			w.Header().Set("Trailer", "X-Sum")
			_, _ = w.Write(body)
			w.Header().Set("X-Sum", r.Trailer.Get("X-Check")+" heard")
			w.Header().Set(http.TrailerPrefix+"X-Late", "late")
		}))
		body := &trailed{Reader: strings.NewReader("text")}
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPut, s.front.URL+path, body)
		require.NoError(t, err)
		request.Trailer = http.Header{"X-Check": nil}
		body.atEnd = func() { request.Trailer.Set("X-Check", "sum") }
		resp, err := http.DefaultClient.Do(request)
		require.NoError(t, err)
		text, err := io.ReadAll(resp.Body)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, "text", string(text))
		require.Equal(t, "sum heard", resp.Trailer.Get("X-Sum"), path)
		require.Equal(t, "late", resp.Trailer.Get("X-Late"))
	}
}

// trailed is a body whose trailers are known at its end.
type trailed struct {
	io.Reader
	atEnd func()
}

func (b *trailed) Read(p []byte) (int, error) {
	n, err := b.Reader.Read(p)
	if errors.Is(err, io.EOF) {
		b.atEnd()
	}
	return n, err
}

// TestRequestsStream: each piece of a push reaches GitLab before the next one is sent.
func TestRequestsStream(t *testing.T) {
	heard := make(chan string)
	s := newStand(t, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		for lines := bufio.NewScanner(r.Body); lines.Scan(); {
			heard <- lines.Text()
		}
	}))
	conn, in := s.dial()
	_, err := io.WriteString(conn, "POST /x.git/git-receive-pack HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n")
	require.NoError(t, err)
	for _, word := range []string{"one", "two", "three"} {
		_, err := fmt.Fprintf(conn, "%x\r\n%s\n\r\n", len(word)+1, word)
		require.NoError(t, err)
		require.Equal(t, word, <-heard)
	}
	_, err = io.WriteString(conn, "0\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusOK, resp.StatusCode)
}

// TestAnswersStream: each piece of an answer reaches the client before the next one is
// made.
func TestAnswersStream(t *testing.T) {
	next := make(chan string)
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_ = http.NewResponseController(w).Flush()
		for word := range next {
			_, _ = io.WriteString(w, word+"\n")
			_ = http.NewResponseController(w).Flush()
		}
	}))
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, s.front.URL+"/x.git/info/refs", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer resp.Body.Close()
	lines := bufio.NewScanner(resp.Body)
	for _, word := range []string{"one", "two", "three"} {
		next <- word
		require.True(t, lines.Scan())
		require.Equal(t, word, lines.Text())
	}
	close(next)
	require.False(t, lines.Scan())
	require.NoError(t, lines.Err())
}

// TestAnEarlyAnswerEndsAnUpload: GitLab refuses an artifact of which it has seen little.
func TestAnEarlyAnswerEndsAnUpload(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Connection", "close")
		w.WriteHeader(http.StatusRequestEntityTooLarge)
	}))
	for range 10 {
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.front.URL+"/api/v4/jobs/7/artifacts", &reader{left: 8 << 20})
		require.NoError(t, err)
		resp, err := http.DefaultClient.Do(request)
		if err != nil {
			continue // the client saw the connection end while it was sending
		}
		_ = resp.Body.Close()
		require.Contains(t, []int{http.StatusRequestEntityTooLarge, http.StatusBadGateway}, resp.StatusCode)
	}
	require.Equal(t, http.StatusRequestEntityTooLarge, s.do(http.MethodPost, "/api/v4/jobs/7/artifacts", "").status, "and it serves the next one")
}

func TestExpectContinueReachesGitLab(t *testing.T) {
	for _, refuse := range []bool{false, true} {
		var read atomic.Int64
		s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r.Header.Get("Expect") != "100-continue" {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			if refuse {
				w.WriteHeader(http.StatusRequestEntityTooLarge)
				return
			}
			n, _ := io.Copy(io.Discard, r.Body)
			read.Store(n)
		}))
		conn, in := s.dial()
		_, err := io.WriteString(conn, "POST /api/v4/jobs/7/artifacts HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nExpect: 100-continue\r\n\r\n")
		require.NoError(t, err)
		resp, err := http.ReadResponse(in, nil)
		require.NoError(t, err)
		_ = resp.Body.Close()
		if refuse {
			require.Equal(t, http.StatusRequestEntityTooLarge, resp.StatusCode, "before a byte of the body was sent")
			continue
		}
		require.Equal(t, http.StatusContinue, resp.StatusCode)
		_, err = io.WriteString(conn, "12345")
		require.NoError(t, err)
		resp, err = http.ReadResponse(in, nil)
		require.NoError(t, err)
		_ = resp.Body.Close()
		require.Equal(t, http.StatusOK, resp.StatusCode, "one 100 and no second one")
		require.Equal(t, int64(5), read.Load())
	}
}

func TestUpgradesPass(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		require.Equal(t, "websocket", r.Header.Get("Upgrade"))
		require.Equal(t, "terminal.gitlab.com", r.Header.Get("Sec-WebSocket-Protocol"))
		conn, buf, err := http.NewResponseController(w).Hijack()
		require.NoError(t, err)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
		line, _ := buf.ReadString('\n')
		_, _ = io.WriteString(conn, "heard "+line)
	}))
	conn, in := s.dial()
	_, err := io.WriteString(conn, "GET /-/jobs/7/terminal.ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Protocol: terminal.gitlab.com\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(in, nil) //nolint:bodyclose // the connection is no HTTP any more
	require.NoError(t, err)
	require.Equal(t, http.StatusSwitchingProtocols, resp.StatusCode)
	_, err = io.WriteString(conn, "ls\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Equal(t, "heard ls\n", line)
}

func TestTheClientsHangUpReachesGitLab(t *testing.T) {
	began, gone := make(chan struct{}), make(chan struct{})
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_ = http.NewResponseController(w).Flush()
		close(began)
		<-r.Context().Done()
		close(gone)
	}))
	ctx, cancel := context.WithCancel(t.Context())
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.front.URL+"/slow", http.NoBody)
	require.NoError(t, err)
	resp, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	<-began
	cancel()
	_ = resp.Body.Close()
	select {
	case <-gone:
	case <-time.After(patience):
		t.Fatal("GitLab still works for a client that is gone")
	}
}

func TestGitLabDownIsA502WithASentence(t *testing.T) {
	s := newStand(t, http.NotFoundHandler(), func(o *frontproxy.Options) { o.GitLab.Host = peertest.DeadAddress(t) })
	for _, path := range []string{"/x?private_token=secret", "/api/v4/jobs/7"} {
		a := s.do(http.MethodPut, path, `{"state":"success","token":"`+jobToken+`"}`)
		require.Equal(t, http.StatusBadGateway, a.status)
		require.JSONEq(t, `{"message":"502 GitLab did not answer"}`, a.body)
	}
	require.Equal(t, http.StatusBadGateway, s.ask("s_1").status)
	require.Contains(t, s.log.all(), "upstream: ")
	require.NotContains(t, s.log.all(), "secret")
	require.NotContains(t, s.log.all(), jobToken)
}

func TestNothingIsSentTwice(t *testing.T) {
	var asked atomic.Int64
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		if asked.Add(1) == 1 {
			w.WriteHeader(http.StatusNoContent) // so that the connection is used again
			return
		}
		panic(http.ErrAbortHandler)
	}))
	require.Equal(t, http.StatusNoContent, s.ask("s_1").status)
	require.Equal(t, http.StatusBadGateway, s.ask("s_1").status)
	require.Equal(t, int64(2), asked.Load())
}

func TestHeadersAreBounded(t *testing.T) {
	s := newStand(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/large" {
			w.Header().Set("X", strings.Repeat("x", 2*frontproxy.MaxHeaderBytes))
		}
	}))
	fits := strings.Repeat("x", frontproxy.MaxHeaderBytes-1000)
	require.Equal(t, 200, s.do(http.MethodGet, "/", "", "X-Filler", fits).status)
	require.Equal(t, 431, s.do(http.MethodGet, "/", "", "X-Filler", fits+strings.Repeat("x", 1000)).status)
	require.Equal(t, 431, s.do(http.MethodGet, "/?"+fits+strings.Repeat("x", 1000), "").status)
	require.Equal(t, 502, s.do(http.MethodGet, "/large", "").status)
}

func TestThisIsNoTunnel(t *testing.T) {
	s := newStand(t, http.NotFoundHandler())
	conn, in := s.dial()
	_, err := io.WriteString(conn, "CONNECT other:22 HTTP/1.1\r\nHost: other:22\r\n\r\n")
	require.NoError(t, err)
	resp, err := http.ReadResponse(in, nil)
	require.NoError(t, err)
	_ = resp.Body.Close()
	require.Equal(t, http.StatusMethodNotAllowed, resp.StatusCode)
}

func TestWhatItNeeds(t *testing.T) {
	_, err := frontproxy.New(frontproxy.Options{})
	require.ErrorContains(t, err, "URL of GitLab")
	_, err = frontproxy.New(frontproxy.Options{GitLab: &url.URL{Scheme: "https", Host: "git.example"}})
	require.ErrorContains(t, err, "are needed")
}

// TestHTTP2ToGitLab: requests, a WebSocket among them, reach a GitLab that speaks both.
func TestHTTP2ToGitLab(t *testing.T) {
	var protocols atomic.Value
	s := &stand{t: t, book: newBook(), contacts: newContacts(), log: &log{}}
	s.gitlab = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocols.Store(r.Proto)
		if r.Header.Get("Upgrade") != "" {
			conn, _, err := http.NewResponseController(w).Hijack()
			if err != nil {
				w.WriteHeader(http.StatusInternalServerError)
				return
			}
			defer conn.Close()
			_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
			return
		}
		body, _ := io.ReadAll(r.Body)
		gives(http.StatusCreated, payload(int64(len(body)), 100)).ServeHTTP(w, r)
	}))
	s.gitlab.EnableHTTP2 = true
	s.gitlab.StartTLS()
	t.Cleanup(s.gitlab.Close)
	s.start(func(o *frontproxy.Options) {
		o.Transport = frontproxy.NewTransport(&tls.Config{RootCAs: s.gitlab.Client().Transport.(*http.Transport).TLSClientConfig.RootCAs})
	})
	require.Equal(t, http.StatusCreated, s.ask("s_1").status)
	require.Equal(t, "HTTP/2.0", protocols.Load())
	s.eventually(func() bool { return strings.HasPrefix(s.log.all(), "given s_1") }, "given")

	conn, in := s.dial()
	_, err := io.WriteString(conn, "GET /ws HTTP/1.1\r\nHost: x\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
	require.NoError(t, err)
	line, err := in.ReadString('\n')
	require.NoError(t, err)
	require.Contains(t, line, "101")
	require.Equal(t, "HTTP/1.1", protocols.Load())
}
