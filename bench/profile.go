package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"runtime/pprof"
	"strings"

	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/secret"
)

// profile runs the server inside this process, under the read load, and writes
// where its time goes: what to look at when a figure is missed. The load
// generator is a second process, so that its time is not in the profile.
func profile(file string, calls int) error {
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	endpoint, err := start(binary, "endpoint", "serve", "--root", dir)
	if err != nil {
		return err
	}
	defer endpoint.stop()
	cfg := config.Default()
	cfg.Home, cfg.Listen = filepath.Join(dir, "home"), "127.0.0.1:0"
	s, err := server.New(context.Background(), cfg, server.Options{Version: "bench"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	ready, ended := make(chan server.ReadyLine, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Run(ctx, func(line server.ReadyLine) error { ready <- line; return nil }) // ends with ctx
	}()
	defer func() {
		cancel()
		<-ended
	}()
	line := <-ready
	raw, err := os.ReadFile(line.TokenFile)
	if err != nil {
		return err
	}
	token := strings.TrimSpace(string(raw))
	c, err := client.New(client.Config{URL: line.URL, Token: secret.New(token)})
	if err != nil {
		return err
	}
	body := map[string]any{"endpoint": map[string]any{"id": "bench", "baseUrl": endpoint.url}}
	var answer json.RawMessage
	if err := c.Do(ctx, http.MethodPost, "/api/capability-router/connect", body, &answer); err != nil {
		return err
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	stop, err := profiled(file)
	if err != nil {
		return err
	}
	loader, err := start(self, "-load", line.URL+" "+token, "-calls", fmt.Sprint(calls))
	stop()
	if err != nil {
		return err
	}
	return loader.cmd.Wait()
}

// profiled writes where the time of this process goes to a file, until stop is called.
func profiled(file string) (stop func(), err error) {
	out, err := os.Create(file)
	if err != nil {
		return nil, err
	}
	if err := pprof.StartCPUProfile(out); err != nil {
		return nil, errors.Join(err, out.Close())
	}
	return func() {
		pprof.StopCPUProfile()
		_ = out.Close()
	}, nil
}

// beLoad is the load generator of profile: it prints a line when it is done.
func beLoad(arg string, calls int) error {
	url, token, _ := strings.Cut(arg, " ")
	_, rate, err := load(plainDoor("server", url, token, nil), requests()[0], 16, calls)
	if err != nil {
		return err
	}
	fmt.Printf("{\"url\":\"%.0f calls/s\"}\n", rate)
	return nil
}
