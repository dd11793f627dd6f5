// The endpoint of the isolation test: the Go example's module twice, under two
// names, in one process that says what it can see of the machine.
package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"strings"
	"time"

	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/secret"
)

func main() {
	if err := run(os.Args[1]); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(tokenFile string) error {
	token, err := os.ReadFile(tokenFile)
	if err != nil {
		return err
	}
	home, office := newClock(time.Now).module(), newClock(time.Now).module()
	office.ID, office.Name = "office-clock", "@examples/office-clock"
	home.Actions = append(home.Actions, host.Action{Name: "LOOK_AROUND", Description: "Say what this process can see.", Handle: look})
	endpoint, err := host.NewEndpoint(home, office)
	if err != nil {
		return err
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Printf("{\"url\":\"http://%s\"}\n", listener.Addr())
	server := &http.Server{Handler: endpoint.Handler(secret.New(strings.TrimSpace(string(token)))), ReadHeaderTimeout: time.Minute}
	return server.Serve(listener)
}

func look(context.Context, json.RawMessage, json.RawMessage) (host.ActionResult, error) {
	var files []string
	entries, err := os.ReadDir("/")
	if err != nil {
		files = append(files, err.Error())
	}
	for _, e := range entries {
		files = append(files, e.Name())
	}
	return host.ActionResult{Data: map[string]any{"uid": os.Getuid(), "gid": os.Getgid(), "pid": os.Getpid(), "environment": len(os.Environ()), "files": files}}, nil
}
