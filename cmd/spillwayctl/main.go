// Command spillwayctl asks and commands a running control plane.
package main

import (
	"context"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// version is set by the linker.
var version = "dev"

func main() {
	// The process ends with main: nobody has to take the signals back.
	ctx, _ := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	a := &app{stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, getenv: os.Getenv, now: time.Now}
	os.Exit(a.run(ctx, arguments(os.Args)))
}
