package pgtest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/testkit/porttest"
)

// startTimeout is how long a server may take to answer.
const startTimeout = 30 * time.Second

// Server is a Postgres server of one test on 127.0.0.1.
type Server struct {
	Port string

	bin, dir string
	attr     *syscall.SysProcAttr
	running  *exec.Cmd     // nil while it is stopped
	ended    chan struct{} // lets the thread go that started it
	log      bytes.Buffer
	made     atomic.Int64
}

// Start makes a server and waits until it answers. It ends with the test.
func Start(t testing.TB) *Server {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if len(found) == 0 {
		without(t, "no Postgres server is installed: make deps does it on Debian")
	}
	dir, err := os.MkdirTemp("", "junctor-pg-*")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	s := &Server{bin: filepath.Dir(found[len(found)-1]), dir: dir, attr: &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}}
	if os.Geteuid() == 0 { // which the server refuses to be
		s.attr.Credential = other(t)
		if err := os.Chown(dir, int(s.attr.Credential.Uid), int(s.attr.Credential.Gid)); err != nil {
			t.Fatal(err)
		}
	}
	password := filepath.Join(dir, "password")
	if err := os.WriteFile(password, []byte(Password), 0o644); err != nil { //nolint:gosec // of a test, and another user reads it
		t.Fatal(err)
	}
	init := s.command(t.Context(), "initdb", "-D", filepath.Join(dir, "data"), "-U", User, "--pwfile", password, "-A", "scram-sha-256",
		"--no-sync", "-E", "UTF8", "--locale", "C")
	if out, err := init.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, s.Port, _ = net.SplitHostPort(porttest.Address(t))
	t.Cleanup(func() {
		s.Stop(t)
		if t.Failed() {
			t.Log(s.log.String())
		}
	})
	s.Run(t)
	return s
}

// other is the user that a server runs as when the test is root's.
func other(t testing.TB) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup("postgres")
	if err != nil {
		without(t, "root needs the user postgres to start a server: "+err.Error())
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func (s *Server) command(ctx context.Context, name string, args ...string) *exec.Cmd {
	c := exec.CommandContext(ctx, filepath.Join(s.bin, name), args...)
	c.SysProcAttr, c.Dir = s.attr, s.dir
	c.Env = []string{"PATH=/usr/bin:/bin"}
	if s.Port != "" {
		c.Env = append(c.Env, "PGPASSWORD="+Password, "PGHOST=127.0.0.1", "PGPORT="+s.Port, "PGUSER="+User)
	}
	return c
}

// Run starts a server that was stopped and waits until it answers.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	server := s.command(context.WithoutCancel(t.Context()), "postgres", "-D", filepath.Join(s.dir, "data"), "-h", "127.0.0.1", "-p", s.Port,
		"-k", s.dir, "-F", "-N", "300")
	server.Stdout, server.Stderr = &s.log, &s.log
	// It dies with the thread that started it (Pdeathsig), so that one stays for it: any
	// other may end while the test goes on.
	started, ended := make(chan error, 1), make(chan struct{})
	go func() {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := server.Start()
		started <- err
		if err == nil {
			<-ended
		}
	}()
	if err := <-started; err != nil {
		t.Fatal(err)
	}
	s.running, s.ended = server, ended
	ctx, cancel := context.WithTimeout(t.Context(), startTimeout)
	defer cancel()
	for s.command(ctx, "pg_isready", "-q").Run() != nil {
		select {
		case <-ctx.Done():
			t.Fatal("the server does not come up")
		case <-time.After(20 * time.Millisecond):
		}
	}
}

// Stop ends the server and all its connections at once; it may be run again.
func (s *Server) Stop(testing.TB) {
	if s.running == nil {
		return
	}
	_ = s.running.Process.Signal(syscall.SIGINT) // "fast": clients are cut off
	_ = s.running.Wait()
	close(s.ended)
	s.running = nil
}

// Database makes an empty database and returns its URL, without the password.
func (s *Server) Database(t testing.TB) string {
	t.Helper()
	name := fmt.Sprintf("test_%d", s.made.Add(1))
	if out, err := s.command(t.Context(), "createdb", name).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return fmt.Sprintf("postgres://%s@127.0.0.1:%s/%s", User, s.Port, name)
}

// Query runs a statement in the database of a URL, as the server's user, and returns
// what it prints: columns with | between, a line for each row.
func (s *Server) Query(t testing.TB, url, statement string) string {
	t.Helper()
	out, err := s.command(t.Context(), "psql", "-X", "-At", "-d", url[strings.LastIndexByte(url, '/')+1:], "-c", statement).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
