// An endpoint of the capability-router protocol in Go, with the host package:
// one module, world-clock, that offers every surface of the protocol. It knows
// what time it is elsewhere and converts times between zones. The work is in
// clock.go, the declaration in module.go; copy the folder and put your own work
// in their place.
//
//	go run . [--port 0] [--token-file FILE]
//
// It prints one JSON line with its URL when it is ready. Then, from elsewhere:
//
//	junctor connect URL && junctor invoke world-clock:action:CONVERT_TIME '{"time":"09:30","from":"Europe/Berlin","to":"Asia/Tokyo"}'
//
// The folder is a Go module of its own, as yours would be: what it needs of
// junctor it imports from outside.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/secret"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "endpoint-go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	flags := flag.NewFlagSet("endpoint-go", flag.ContinueOnError)
	port := flags.Int("port", 0, "port on 127.0.0.1; 0 picks a free one")
	tokenFile := flags.String("token-file", "", "file with the token callers must send; without it everybody on this machine may call")
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		return nil
	case err != nil:
		return err
	}
	var token secret.Value
	if *tokenFile != "" {
		text, err := os.ReadFile(*tokenFile)
		if err != nil {
			return err
		}
		if token = secret.New(strings.TrimSpace(string(text))); token.Empty() {
			return fmt.Errorf("%s is empty: it would let everybody in", *tokenFile)
		}
	}
	endpoint, err := host.NewEndpoint(newClock(time.Now).module())
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(*port)))
	if err != nil {
		return err
	}
	url := "http://" + listener.Addr().String()
	ready, err := json.Marshal(map[string]any{"url": url, "baseUrl": url, "moduleIds": endpoint.ModuleIDs(), "bundlePath": bundlePath})
	if err != nil {
		return err
	}
	fmt.Println(string(ready))

	server := &http.Server{Handler: endpoint.Handler(token), ReadHeaderTimeout: 10 * time.Second}
	done := make(chan error, 1)
	go func() { done <- server.Serve(listener) }()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
	}
	// Calls under way may end; new ones are not taken.
	closing, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	return server.Shutdown(closing)
}
