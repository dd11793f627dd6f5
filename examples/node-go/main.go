// A node in Go, with the package host/device: a program that joins a gateway and
// whose functions others call. It has three: what the machine is, a timer that can be
// cancelled, and a stream of the primes. The work is in functions.go; copy the folder
// and put your own there.
//
//	go run . URL --node-token-file FILE [--id ID] [--dir DIR]
//
// URL is the gateway's. FILE holds a token of the operator's, made with
//
//	junctor tokens create --role node
//
// which is needed the first time only: from then on the key in DIR is enough. It
// prints one JSON line when it has joined. Then, from elsewhere:
//
//	junctor call ID primes '{"below":50}' --stream
//
// The folder is a Go module of its own, as yours would be.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/secret"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "node-go:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	if len(args) == 0 || strings.HasPrefix(args[0], "-") {
		return errors.New("which gateway? Give its URL first")
	}
	flags := flag.NewFlagSet("node-go", flag.ContinueOnError)
	tokenFile := flags.String("node-token-file", "", "file with the operator's node token; needed the first time")
	id := flags.String("id", "", "name at the gateway; by default the name of this machine")
	dir := flags.String("dir", "node-go.state", "folder of this node: its key and its name")
	switch err := flags.Parse(args[1:]); {
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
		token = secret.New(strings.TrimSpace(string(text)))
	}
	said := false
	return device.Run(ctx, device.Config{
		Gateway: args[0], Token: token, Dir: *dir, ID: *id, Name: "node-go", Version: "1.0.0", Labels: []string{"example"},
		Functions: functions(),
		Logger:    slog.New(slog.NewTextHandler(os.Stderr, nil)),
		Changed: func(s device.Status) { // one at a time
			if s.State != device.Connected || said {
				return
			}
			said = true
			if line, err := json.Marshal(map[string]any{"node_id": s.ID, "epoch": s.Epoch, "pid": os.Getpid()}); err == nil {
				fmt.Println(string(line))
			}
		},
	})
}
