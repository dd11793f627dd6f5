package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/testkit/porttest"
	"github.com/junctor-run/junctor/secret"
)

func clusterSecret() secret.Value { return secret.New("0123456789abcdef0123456789abcdef") }

// natsServer is a process of the NATS server, as an operator would run it.
type natsServer struct {
	address string
	cmd     *exec.Cmd
	ended   chan struct{}
}

// kill ends it as a power cut does.
func (s *natsServer) kill() {
	_ = s.cmd.Process.Kill()
	<-s.ended
}

// serverProgram builds the server once for all tests of a run.
var serverProgram = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "gateway-test-*")
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "nats-server")
	out, err := exec.Command("go", "build", "-o", program, "github.com/nats-io/nats-server/v2").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return program, nil
})

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m, goleak.Cleanup(func(code int) {
		if program, err := serverProgram(); err == nil {
			os.RemoveAll(filepath.Dir(program))
		}
		os.Exit(code)
	}))
}

func startServers(t testing.TB, n int) []*natsServer {
	t.Helper()
	program, err := serverProgram()
	if err != nil {
		t.Fatal(err)
	}
	text, err := natsbus.ServerConfig(clusterSecret())
	if err != nil {
		t.Fatal(err)
	}
	var routes []string
	for range n {
		routes = append(routes, porttest.Address(t))
	}
	var all []*natsServer
	for i := range n {
		dir := t.TempDir()
		s := &natsServer{address: porttest.Address(t), ended: make(chan struct{})}
		config := fmt.Sprintf("%s\nserver_name: s%d\nlisten: %q\njetstream { store_dir: %q }\ncluster { name: %q, listen: %q, routes: [%s] }\n",
			text, i, s.address, filepath.Join(dir, "store"), routes[0], routes[i], `"nats://`+strings.Join(routes, `", "nats://`)+`"`)
		file := filepath.Join(dir, "server.conf")
		if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		s.cmd = exec.CommandContext(ctx, program, "-c", file)
		says, err := s.cmd.StderrPipe()
		if err == nil {
			err = s.cmd.Start()
		}
		if err != nil {
			t.Fatal(err)
		}
		ready := make(chan bool, 1)
		go func() {
			defer close(s.ended)
			lines := bufio.NewScanner(says)
			var last string
			for lines.Scan() {
				if last = lines.Text(); strings.Contains(last, "Server is ready") {
					ready <- true
				}
			}
			close(ready)
			_ = s.cmd.Wait()
		}()
		t.Cleanup(func() { cancel(); <-s.ended })
		if !<-ready {
			t.Fatal("a server ended before it was ready")
		}
		all = append(all, s)
	}
	return all
}
