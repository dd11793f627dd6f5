package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

const binary = "bin/junctor"

// process is one part of the stage.
type process struct {
	cmd *exec.Cmd
	url string
}

// stage is the cast: an endpoint, a bare proxy before it, and a server it is
// connected to.
type stage struct {
	dir                          string
	endpoint, proxy, server      *process
	endpointToken, operatorToken string
	closed                       bool
}

func listenLoopback() (net.Listener, error) { return net.Listen("tcp", "127.0.0.1:0") }

// start runs a program that prints a JSON line with its URL when it is ready.
func start(name string, args ...string) (*process, error) { return startWith(nil, name, args...) }

// startWith is start with more of an environment.
func startWith(env []string, name string, args ...string) (*process, error) {
	cmd := exec.Command(name, args...)
	cmd.Env = append(os.Environ(), env...)
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var ready struct {
		URL string `json:"url"`
	}
	if err == nil {
		err = json.Unmarshal(line, &ready)
	}
	if err != nil {
		_ = cmd.Process.Kill()
		return nil, fmt.Errorf("%s %v: not ready: %w", name, args, err)
	}
	return &process{cmd, ready.URL}, nil
}

func (p *process) stop() {
	if p == nil {
		return
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	done := make(chan struct{})
	go func() { _ = p.cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(12 * time.Second):
		_ = p.cmd.Process.Kill()
	}
}

// cpu is what the process has used since it began.
func (p *process) cpu() time.Duration {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	// The name may hold spaces; the fields after its closing bracket do not.
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	user, _ := strconv.ParseInt(fields[11], 10, 64)
	system, _ := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * (time.Second / 100)
}

// rss is the resident memory in bytes.
func (p *process) rss() int64 {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(data)) {
		if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			kib, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
			return kib << 10
		}
	}
	return 0
}

func newStage() (s *stage, err error) {
	s = &stage{endpointToken: "bench-endpoint-token"}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "junctor-bench-"); err != nil {
		return s, err
	}
	files := filepath.Join(s.dir, "files")
	if err := os.MkdirAll(files, 0o700); err != nil {
		return s, err
	}
	if err := os.WriteFile(filepath.Join(files, "hello.txt"), []byte("hello\n"), 0o600); err != nil {
		return s, err
	}
	tokenFile := filepath.Join(s.dir, "endpoint.token")
	if err := os.WriteFile(tokenFile, []byte(s.endpointToken), 0o600); err != nil {
		return s, err
	}
	if s.endpoint, err = start(binary, "endpoint", "serve", "--endpoint-token-file", tokenFile, "--root", files); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	if s.proxy, err = start(self, "-proxy", s.endpoint.url); err != nil {
		return s, err
	}
	s.server, s.operatorToken, err = s.serve(filepath.Join(s.dir, "home"))
	return s, err
}

// serve starts a server that is connected to the endpoint, with more of an environment, and returns
// the token of an operator.
func (s *stage) serve(home string, env ...string) (p *process, token string, err error) {
	defer func() {
		if err != nil {
			p.stop()
		}
	}()
	if p, err = startWith(env, binary, "--home", home, "serve", "--listen", "127.0.0.1:0"); err != nil {
		return p, "", err
	}
	tokenFile := filepath.Join(s.dir, "endpoint.token")
	if _, err := s.cli(home, "connect", s.endpoint.url, "--id", "bench", "--endpoint-token-file", tokenFile); err != nil {
		return p, "", err
	}
	out, err := s.cli(home, "tokens", "create", "--role", "operator", "--name", "bench")
	if err != nil {
		return p, "", err
	}
	var made struct {
		Token string `json:"token"`
	}
	err = json.Unmarshal(out, &made)
	return p, made.Token, err
}

func (s *stage) cli(home string, args ...string) ([]byte, error) {
	cmd := exec.Command(binary, append([]string{"--home", home, "--json"}, args...)...)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("junctor %v: %w: %s%s", args, err, out, stderr.Bytes())
	}
	return out, nil
}

func (s *stage) close() {
	if s.closed {
		return
	}
	s.closed = true
	s.server.stop()
	s.proxy.stop()
	s.endpoint.stop()
	_ = os.RemoveAll(s.dir)
}

// startAndSize measures start to ready, idle memory and the size of the binary.
func startAndSize(sh *sheet) error {
	info, err := os.Stat(binary)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	var first, best time.Duration
	var idle int64
	for i := range 5 {
		began := time.Now()
		p, err := start(binary, "--home", filepath.Join(dir, "home"), "serve", "--listen", "127.0.0.1:0")
		if err != nil {
			return err
		}
		took := time.Since(began)
		if i == 0 {
			first = took
		} else if best == 0 || took < best {
			best = took
		}
		if i == 4 {
			time.Sleep(2 * time.Second)
			idle = p.rss()
		}
		p.stop()
	}
	if idle == 0 {
		return errors.New("no memory figure")
	}
	sh.budget("start to ready, new home", "ms", 150, float64(first.Milliseconds()), "make bench")
	sh.budget("start to ready, existing home", "ms", 150, float64(best.Milliseconds()), "make bench")
	sh.budget("memory, idle", "MiB", 60, float64(idle)/(1<<20), "make bench")
	sh.budget("binary", "MiB", 45, float64(info.Size())/(1<<20), "make build")
	return nil
}
