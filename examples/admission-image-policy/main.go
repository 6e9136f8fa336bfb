// An admission controller that refuses jobs whose image is not on a list.
package main

import (
	"context"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path"
	"strings"
	"syscall"

	"github.com/spillway-ci/spillway/admission/controller"
	admissionv1 "github.com/spillway-ci/spillway/proto/spillway/admission/v1"
)

func main() {
	o := controller.Options{Controller: "image-policy", Version: "example", Told: told}
	var allowed patterns
	flag.Func("allow", "pattern of images that may run, such as registry.example.com/*/*:v*; may be given several times", allowed.add)
	o.Flags(flag.CommandLine)
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	err := controller.Run(ctx, o, allowed.judge)
	stop()
	if err != nil {
		slog.Error("not started", "error", err)
		os.Exit(1)
	}
}

func told(addr string, err error) {
	if err == nil {
		slog.Info("connected to a control plane", "addr", addr)
	} else {
		slog.Warn("connecting again", "addr", addr, "error", err)
	}
}

// patterns are those of package path: * is anything without a slash.
type patterns []string

func (p *patterns) add(pattern string) error {
	if _, err := path.Match(pattern, ""); err != nil {
		return fmt.Errorf("%q: %w", pattern, err)
	}
	*p = append(*p, pattern)
	return nil
}

func (p patterns) allow(image string) bool {
	for _, pattern := range p {
		if ok, _ := path.Match(pattern, image); ok {
			return true
		}
	}
	return false
}

// judge looks at the job's image and at those of its services. A job that names none
// runs in whatever its machine has: whether that may be, "--allow ”" says.
func (p patterns) judge(_ context.Context, job *admissionv1.ReviewedJob) (bool, string) {
	for _, image := range append([]string{job.GetImage()}, job.GetServices()...) {
		switch {
		case p.allow(image):
		case image == "":
			return false, "the job names no image; allowed are " + strings.Join(p, ", ")
		default:
			return false, fmt.Sprintf("image %s is not allowed; allowed are %s", image, strings.Join(p, ", "))
		}
	}
	return true, ""
}
