// Command migstubd serves the managed instance groups of a fault file on a
// loopback port, for people and for clients in other languages.
package main

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/spillway-ci/spillway/internal/migstub"
)

const long = `migstubd is a stand-in for the Google Compute API v1 as far as managed instance
groups need it. It prints its address; gcloud works on it with

  CLOUDSDK_AUTH_DISABLE_CREDENTIALS=true
  CLOUDSDK_API_ENDPOINT_OVERRIDES_COMPUTE=http://ADDRESS/compute/v1/
  CLOUDSDK_CORE_PROJECT=p`

const example = `  migstubd --faults faults.yaml --port 8080

  # faults.yaml
  seed: 1
  groups:
    - name: linux
      zone: europe-west1-b
      size: 2
      faults: {boot: 30s, stop: 20s}`

func main() { os.Exit(run()) }

func run() int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := command().ExecuteContext(ctx); err != nil {
		return 1 // cobra has told
	}
	return 0
}

func command() *cobra.Command {
	var faults string
	var port int
	cmd := &cobra.Command{
		Use: "migstubd --faults FILE", Short: "a stand-in for Google's managed instance groups",
		Long: long, Example: example, Args: cobra.NoArgs, SilenceUsage: true,
		RunE: func(cmd *cobra.Command, _ []string) error {
			file, err := migstub.ReadFaults(faults)
			if err != nil {
				return fmt.Errorf("read the groups: %w", err)
			}
			return serve(cmd, file.New(nil), port)
		},
	}
	cmd.Flags().StringVar(&faults, "faults", "", "YAML file with the groups and what is wrong with them")
	cmd.Flags().IntVar(&port, "port", 0, "port on 127.0.0.1; 0 takes a free one")
	if err := cmd.MarkFlagRequired("faults"); err != nil {
		panic(err) // the flag is defined above
	}
	return cmd
}

// serve listens until the command is interrupted.
func serve(cmd *cobra.Command, cloud *migstub.Cloud, port int) error {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fmt.Fprintf(cmd.OutOrStdout(), "http://%s/compute/v1/\n", listener.Addr())
	server := &http.Server{Handler: cloud, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(cmd.Context(), func() { _ = server.Close() })
	defer stop()
	if err := server.Serve(listener); cmd.Context().Err() == nil {
		return fmt.Errorf("serve: %w", err)
	}
	return nil
}
