package suite

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"mime/multipart"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"strconv"

	"github.com/spillway-ci/spillway/internal/bench/child"
)

// transferBytes is how much is read and written at a time.
const transferBytes = 128 << 10

// artifactPath is where a job's artifacts are; which job it is, is nothing to a proxy.
const artifactPath = "/api/v4/jobs/42/artifacts"

// artifactToken is what a runner shows for its job: GitLab's prefix, and no secret.
const artifactToken = "glcbt-of-a-benchmark"

// transfer moves an artifact between a runner and a GitLab, or what stands before it.
type transfer func(ctx context.Context, gitlab string, size int64) error

// artifactStore is a GitLab that takes artifacts and gives them, with the least work that
// it takes; everything else is next's.
func artifactStore(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != artifactPath {
			next.ServeHTTP(w, r)
			return
		}
		if r.Method == http.MethodPost {
			_, err := io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{r.Body}, make([]byte, transferBytes))
			if err != nil || r.Header.Get("Job-Token") != artifactToken {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			w.WriteHeader(http.StatusCreated)
			return
		}
		size, err := strconv.ParseInt(r.Header.Get(artifactSizeHeader), 10, 64)
		if err != nil {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		w.Header().Set("Content-Length", strconv.FormatInt(size, 10))
		_, _ = io.CopyBuffer(struct{ io.Writer }{w}, &zeros{left: size}, make([]byte, transferBytes)) // the runner counts
	})
}

// artifactSizeHeader says how long an artifact is that is to be made up.
const artifactSizeHeader = "X-Bench-Size"

// uploadArtifact sends a form with one file, whose length nobody knows before.
func uploadArtifact(ctx context.Context, gitlab string, size int64) error {
	var head bytes.Buffer
	form := multipart.NewWriter(&head)
	if _, err := form.CreateFormFile("file", "artifacts.zip"); err != nil {
		return err
	}
	tail := "\r\n--" + form.Boundary() + "--\r\n"
	body := io.MultiReader(&head, &zeros{left: size}, bytes.NewReader([]byte(tail)))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, gitlab+artifactPath, body)
	if err != nil {
		return err
	}
	request.Header.Set("Content-Type", form.FormDataContentType())
	_, err = answerOf(request, http.StatusCreated)
	return err
}

func downloadArtifact(ctx context.Context, gitlab string, size int64) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, gitlab+artifactPath, http.NoBody)
	if err != nil {
		return err
	}
	request.Header.Set(artifactSizeHeader, strconv.FormatInt(size, 10))
	n, err := answerOf(request, http.StatusOK)
	if err == nil && n < size {
		err = fmt.Errorf("%d of %d bytes came back", n, size)
	}
	return err
}

// answerOf makes a call on a connection of its own and returns how long the answer was.
func answerOf(request *http.Request, want int) (int64, error) {
	request.Header.Set("Job-Token", artifactToken)
	transport := &http.Transport{ReadBufferSize: transferBytes, WriteBufferSize: transferBytes, DisableCompression: true}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(request)
	if err != nil {
		return 0, err
	}
	defer func() { _ = resp.Body.Close() }()
	if resp.StatusCode != want {
		return 0, fmt.Errorf("status %d", resp.StatusCode)
	}
	return io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{resp.Body}, make([]byte, transferBytes))
}

// zeros is so many bytes of a file.
type zeros struct{ left int64 }

func (z *zeros) Read(p []byte) (int, error) {
	if z.left == 0 {
		return 0, io.EOF
	}
	n := int(min(int64(len(p)), z.left))
	clear(p[:n])
	z.left -= int64(n)
	return n, nil
}

// plainProxyRole is the process of a proxy of the standard library that does nothing
// besides.
const plainProxyRole = "plain-proxy"

type plainProxy struct {
	*child.Process

	url string
}

func startPlainProxy(ctx context.Context, to string) (*plainProxy, error) {
	p, err := child.Start(plainProxyRole, to)
	if err != nil {
		return nil, err
	}
	addr, err := p.Hear(ctx, "serving")
	if err != nil {
		p.Stop()
		return nil, err
	}
	return &plainProxy{p, "http://" + addr}, nil
}

// runPlainProxy is the child: URL.
func runPlainProxy(args []string) error {
	if len(args) != 1 {
		return fmt.Errorf("a child needs a URL, got %q", args)
	}
	to, err := url.Parse(args[0])
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	proxy := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }}
	server := &http.Server{Handler: proxy, ReadHeaderTimeout: headerTimeout}
	go func() { _ = server.Serve(l) }() // it ends with the process
	child.Answer("serving", l.Addr())
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}
