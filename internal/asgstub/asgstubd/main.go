// Command asgstubd serves the stand-in for AWS Auto Scaling on a port, so that a
// person can try aws-cli, boto3 or Spillway's ec2asg plugin on it.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/signal"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/internal/asgstub"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "asgstubd:", err)
		os.Exit(1) //nolint:gocritic // nothing is left to stop
	}
}

func command() *cobra.Command {
	var listen, file string
	cmd := &cobra.Command{
		Use:   "asgstubd",
		Short: "Serve a stand-in for AWS Auto Scaling (with some EC2, STS, SQS and CloudWatch)",
		Example: `  asgstubd --file faults.yaml --listen 127.0.0.1:4580
  AWS_ACCESS_KEY_ID=me AWS_SECRET_ACCESS_KEY=x AWS_DEFAULT_REGION=us-east-1 \
    aws --endpoint-url http://127.0.0.1:4580 autoscaling describe-auto-scaling-groups`,
		Args:          cobra.NoArgs,
		SilenceUsage:  true,
		SilenceErrors: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f := asgstub.File{
				Queues: []string{"spillway-events"},
				Groups: []asgstub.GroupConfig{{Name: "ci", Max: 10, NewInstancesProtected: true}},
			}
			if file != "" {
				var err error
				if f, err = asgstub.ReadFaults(file); err != nil {
					return err
				}
			}
			return serve(cmd.Context(), cmd.OutOrStdout(), listen, f)
		},
	}
	cmd.Flags().StringVar(&listen, "listen", "127.0.0.1:0", "address to listen on; port 0 takes a free one and prints it")
	cmd.Flags().StringVar(&file, "file", "", `fault file with the groups (default: one group "ci" without faults and a queue "spillway-events")`)
	return cmd
}

// headerTimeout bounds how long a client may take to say what it wants.
const headerTimeout = 10 * time.Second

func serve(ctx context.Context, out io.Writer, listen string, f asgstub.File) error {
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	c := f.Start(f.Options())
	c.Observe = func(ch asgstub.Change) { say(out, ch) }
	fmt.Fprintf(out, "http://%s serves %d groups\n", l.Addr(), len(c.Groups()))
	go c.Run(ctx)
	srv := &http.Server{Handler: c, ReadHeaderTimeout: headerTimeout, BaseContext: func(net.Listener) context.Context { return ctx }}
	stop := context.AfterFunc(ctx, func() { _ = srv.Close() })
	defer stop()
	if err := srv.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}

func say(out io.Writer, ch asgstub.Change) {
	what := map[asgstub.ChangeKind]string{asgstub.Launched: "launched", asgstub.Ready: "ready", asgstub.Ended: "ended"}[ch.Kind]
	fmt.Fprintf(out, "%s %s %s %s %s\n", ch.At.Format(time.TimeOnly), ch.Group, ch.ID, what, ch.Cause)
}
