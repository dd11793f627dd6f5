package scenario_test

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/platform/secretstore"
	"github.com/junctor-run/junctor/internal/testkit/pgtest"
	"github.com/junctor-run/junctor/internal/testkit/porttest"
	"github.com/junctor-run/junctor/secret"
)

// natsProgram is the NATS server, built once, beside the binary.
var natsProgram = sync.OnceValues(func() (string, error) {
	path, err := binary()
	if err != nil {
		return "", err
	}
	path = filepath.Join(filepath.Dir(path), "nats-server")
	out, err := exec.Command("go", "build", "-o", path, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", errors.New(string(out))
	}
	return path, nil
})

const busSecret = "0123456789abcdef0123456789abcdef" // the one that all gateways of these tests share

// secretHome is a fresh home with the secrets of a gateway that shares.
func secretHome(t testing.TB) string {
	t.Helper()
	home := t.TempDir()
	secrets, err := secretstore.Open(filepath.Join(home, "secrets"), secretstore.Further{})
	if err != nil {
		t.Fatal(err)
	}
	defer secrets.Close()
	for name, value := range map[string]string{"pg": pgtest.Password, "bus": busSecret} {
		if err := secrets.Set(name, secret.New(value)); err != nil {
			t.Fatal(err)
		}
	}
	return home
}

// natsServer is a process of the NATS server as an operator runs it.
type natsServer struct {
	t             testing.TB
	address, file string
	cmd           *exec.Cmd
	over          chan struct{}
}

func (s *natsServer) run() {
	s.t.Helper()
	program, err := natsProgram()
	if err != nil {
		s.t.Fatal(err)
	}
	cmd, over := exec.Command(program, "-c", s.file), make(chan struct{})
	says, err := cmd.StderrPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	ready := make(chan bool, 1)
	go func() {
		defer close(over)
		lines := bufio.NewScanner(says)
		for lines.Scan() {
			if strings.Contains(lines.Text(), "Server is ready") {
				ready <- true
			}
		}
		close(ready)
		_ = cmd.Wait()
	}()
	s.cmd, s.over = cmd, over
	if !<-ready {
		s.t.Fatal("a NATS server ended before it was ready")
	}
}

func (s *natsServer) kill() {
	_ = s.cmd.Process.Kill()
	<-s.over
}

// cluster is three NATS servers and a Postgres server, which gateways share.
type cluster struct {
	t        testing.TB
	servers  []*natsServer
	postgres *pgtest.Server
	database string
}

// newCluster starts them; the servers' configuration is what the command prints.
func newCluster(t testing.TB) *cluster {
	t.Helper()
	c := &cluster{t: t, postgres: pgtest.Start(t)}
	c.database = c.postgres.Database(t)
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	print := exec.Command(path, "--home", secretHome(t), "config", "nats")
	print.Env = append(os.Environ(), "JUNCTOR_NATS_KEY_SECRET=bus")
	text, err := print.Output()
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for range 3 {
		routes = append(routes, porttest.Address(t))
	}
	for i := range 3 {
		s := &natsServer{t: t, address: porttest.Address(t), file: filepath.Join(t.TempDir(), "server.conf")}
		config := fmt.Sprintf("%s\nserver_name: s%d\nlisten: %q\njetstream { store_dir: %q }\ncluster { name: %q, listen: %q, routes: [%s] }\n",
			text, i, s.address, filepath.Join(filepath.Dir(s.file), "store"), routes[0], routes[i],
			`"nats://`+strings.Join(routes, `", "nats://`)+`"`)
		if err := os.WriteFile(s.file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		s.run()
		t.Cleanup(func() { s.kill() })
		c.servers = append(c.servers, s)
	}
	return c
}

// env is the configuration of gateway number i, whose nearest server is number i.
func (c *cluster) env(i int) []string {
	var urls []string
	for k := range c.servers {
		urls = append(urls, "nats://"+c.servers[(i+k)%len(c.servers)].address)
	}
	return []string{
		"JUNCTOR_NATS_URL=" + strings.Join(urls, ","), "JUNCTOR_NATS_KEY_SECRET=bus", "JUNCTOR_NATS_REPLICAS=3",
		"JUNCTOR_STORE_URL=" + c.database, "JUNCTOR_STORE_PASSWORD_SECRET=pg", "JUNCTOR_GATEWAY_GRACE=1s",
	}
}

// gateway starts gateway number i.
func (c *cluster) gateway(i int) *plane {
	c.t.Helper()
	return serve(c.t, secretHome(c.t), porttest.Address(c.t), c.env(i)...)
}

// again starts a gateway that has ended at the address it had.
func (c *cluster) again(i int, p *plane) *plane {
	c.t.Helper()
	return serve(c.t, p.home, strings.TrimPrefix(p.url, "http://"), c.env(i)...)
}

// whole is where a node goes that knows both gateways.
func whole(a, b *plane) *plane {
	p := *a
	p.url += "," + b.url
	return &p
}

// end asks a process to end and waits until it has.
func (p *process) end(t testing.TB) {
	t.Helper()
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-p.over:
	case <-time.After(time.Minute):
		t.Fatalf("still running a minute after SIGTERM: %s", p.stderr)
	}
}
