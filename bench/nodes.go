package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/core/invoke"
	"github.com/junctor-run/junctor/internal/nodes/gateway"
	"github.com/junctor-run/junctor/internal/nodes/messaging"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsbus"
	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// nodeID is the one node of each part.
const nodeID = "bench"

// echoes is this side of the yardstick: requests over the one connection that the
// other process has opened, told apart by their first eight bytes.
type echoes struct {
	ws *websocket.Conn

	mu      sync.Mutex
	made    uint64
	waiting map[string]chan []byte
	stream  chan []byte // of the one stream there is
}

func (e *echoes) read(ctx context.Context) {
	for {
		_, data, err := e.ws.Read(ctx)
		if err != nil {
			return
		}
		if len(data) == chunkSize {
			e.stream <- data
			continue
		}
		id := string(data[:8])
		e.mu.Lock()
		answer := e.waiting[id]
		delete(e.waiting, id)
		e.mu.Unlock()
		answer <- data[8:]
	}
}

func (e *echoes) call(ctx context.Context) error {
	answer := make(chan []byte, 1)
	e.mu.Lock()
	e.made++
	id := fmt.Sprintf("%08x", e.made)
	e.waiting[id] = answer
	e.mu.Unlock()
	if err := e.ws.Write(ctx, websocket.MessageBinary, []byte(id+nodeInput)); err != nil {
		return err
	}
	select {
	case data := <-answer:
		if len(data) != len(nodeInput) {
			return fmt.Errorf("an echo of %d bytes", len(data))
		}
		return nil
	case <-time.After(30 * time.Second):
		return fmt.Errorf("no echo")
	}
}

// nodeStage is the cast: an echo, a gateway alone with its node, and a server with
// its own; the far ends are processes.
type nodeStage struct {
	ctx     context.Context
	echo    *echoes
	gateway *gateway.Gateway
	engine  *invoke.Engine
	url     string
	token   string // of the server's admin
	far     []*process
	profile string // beside it, the far ends write where their time goes; "": they do not
	close   []func()
}

func (s *nodeStage) end() {
	for _, p := range s.far {
		p.stop()
	}
	for _, f := range slices.Backward(s.close) {
		f()
	}
}

// listen serves a handler until the stage ends.
func (s *nodeStage) listen(h http.Handler) (string, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	web := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	go func() { _ = web.Serve(listener) }() // ends with Close
	s.close = append(s.close, func() { _ = web.Close() })
	return "http://" + listener.Addr().String(), nil
}

// spawn starts this program as one of the parts.
func (s *nodeStage) spawn(args ...string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if s.profile != "" {
		args = append(args, "-profile", fmt.Sprintf("%s.far%d", s.profile, len(s.far)))
	}
	p, err := start(self, args...)
	if err == nil {
		s.far = append(s.far, p)
	}
	return err
}

func newNodeStage(heartbeat time.Duration, profile string) (s *nodeStage, err error) {
	ctx, cancel := context.WithCancel(context.Background())
	s = &nodeStage{ctx: ctx, profile: profile, close: []func(){cancel}}
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return s, err
	}
	s.close = append(s.close, func() { _ = os.RemoveAll(dir) })
	if err := s.openEcho(); err != nil {
		return s, err
	}
	if err := s.openTransport(filepath.Join(dir, "nats"), heartbeat); err != nil {
		return s, err
	}
	return s, s.openEngine(filepath.Join(dir, "home"))
}

func (s *nodeStage) openEcho() error {
	met := make(chan *websocket.Conn, 1)
	address, err := s.listen(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ws, err := websocket.Accept(w, r, &websocket.AcceptOptions{CompressionMode: websocket.CompressionDisabled})
		if err != nil {
			return
		}
		defer func() { _ = ws.CloseNow() }()
		met <- ws
		<-s.ctx.Done()
	}))
	if err != nil {
		return err
	}
	if err := s.spawn("-node-part", "echo "+address); err != nil {
		return err
	}
	s.echo = &echoes{ws: <-met, waiting: make(map[string]chan []byte), stream: make(chan []byte)}
	s.echo.ws.SetReadLimit(1 << 20)
	go s.echo.read(s.ctx)
	return nil
}

// openTransport is a gateway and nothing that decides who may call.
func (s *nodeStage) openTransport(dir string, heartbeat time.Duration) error {
	broker, err := natsbus.Embed(s.ctx, dir, natsbus.Config{Authorize: func(_ context.Context, c messaging.Credential) (messaging.Identity,
		error,
	) {
		id := c.Token.Reveal()
		subscribe, publish := wire.Permissions(id)
		return messaging.Identity{ID: id, Publish: publish, Subscribe: subscribe}, nil
	}})
	if err != nil {
		return err
	}
	s.close = append(s.close, broker.Close)
	s.gateway = gateway.New(gateway.Config{Broker: broker, Heartbeat: heartbeat, Granted: func(string) ([]string, error) { return nil, nil }})
	ended := make(chan struct{})
	ctx, cancel := context.WithCancel(s.ctx)
	go func() { defer close(ended); _ = s.gateway.Run(ctx) }()
	s.close = append(s.close, func() { cancel(); <-ended })
	mux := http.NewServeMux()
	mux.Handle(natsdial.ConnectPath, broker.Handler(func(*http.Request) error { return nil }))
	address, err := s.listen(mux)
	if err != nil {
		return err
	}
	return s.spawn("-node-part", strings.Join([]string{"node", address, nodeID, nodeID}, " "))
}

// openEngine is the whole server.
func (s *nodeStage) openEngine(home string) error {
	cfg := config.Default()
	cfg.Home, cfg.Listen = home, "127.0.0.1:0"
	whole, err := server.New(s.ctx, cfg, server.Options{Version: "bench"})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(s.ctx)
	ready, ended := make(chan server.ReadyLine, 1), make(chan struct{})
	go func() {
		defer close(ended)
		_ = whole.Run(ctx, func(line server.ReadyLine) error { ready <- line; return nil })
	}()
	s.close = append(s.close, func() { cancel(); <-ended })
	line := <-ready
	raw, err := os.ReadFile(line.TokenFile)
	if err != nil {
		return err
	}
	s.engine, s.url, s.token = whole.Engine(), line.URL, strings.TrimSpace(string(raw))
	token, err := nodeToken(s.ctx, s.url, s.token)
	if err != nil {
		return err
	}
	if err := s.spawn("-node-part", strings.Join([]string{"node", s.url, nodeID, token}, " ")); err != nil {
		return err
	}
	for began := time.Now(); ; { // the catalog follows the list of nodes
		if err = s.invoke(nodeRead, nodeInput, nil); err == nil || time.Since(began) > 10*time.Second {
			return err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// nodeToken makes a token by which nodes join.
func nodeToken(ctx context.Context, address, admin string) (string, error) {
	c, err := client.New(client.Config{URL: address, Token: secret.New(admin)})
	if err != nil {
		return "", err
	}
	var out struct{ Token string }
	err = c.Do(ctx, http.MethodPost, "/api/v1/tokens", map[string]any{"role": "node"}, &out)
	return out.Token, err
}

func (s *nodeStage) invoke(function, input string, progress func(capability.Chunk)) error {
	reply, err := s.engine.Invoke(s.ctx, capability.Invocation{
		Surface: "http", Principal: capability.Principal{ID: "admin:bench", Role: capability.RoleAdmin}, Audience: capability.AudienceAgent,
		Progress: progress,
		Target:   capability.Target{Action: capability.Action("fn." + function)}, Input: json.RawMessage(input),
	})
	if err == nil && len(reply.Result) == 0 {
		err = fmt.Errorf("an empty result")
	}
	return err
}

func (s *nodeStage) doors() []door {
	arguments, err := cmp.ParseArguments([]byte(nodeInput))
	if err != nil {
		panic(err) // a constant of this package
	}
	simple := func(name string, far int, call func() error) door {
		return door{name, s.far[far], func(request, int) (func(int) error, func(), error) {
			return func(int) error { return call() }, func() {}, nil
		}}
	}
	return []door{
		simple("echo over WebSocket", 0, func() error { return s.echo.call(s.ctx) }),
		simple("gateway → node", 1, func() error {
			r, err := s.gateway.Call(s.ctx, gateway.Request{Node: nodeID, Function: nodeRead, Arguments: arguments})
			if err == nil && len(r.Value) != len(nodeAnswer) {
				err = fmt.Errorf("a result of %d bytes", len(r.Value))
			}
			return err
		}),
		simple("engine → node", 2, func() error { return s.invoke(nodeRead, nodeInput, nil) }),
		{"HTTP → engine → node", s.far[2], invocationDoor(s.url, s.token, func(int) client.Invocation {
			return client.Invocation{Target: "fn." + nodeRead, Input: json.RawMessage(nodeInput)}
		})},
	}
}

// invocationDoor calls over HTTP, each worker what of says.
func invocationDoor(address, token string, of func(worker int) client.Invocation) func(request, int) (func(int) error, func(), error) {
	return func(_ request, workers int) (func(int) error, func(), error) {
		transport := &http.Transport{MaxIdleConnsPerHost: workers}
		c, err := client.New(client.Config{URL: address, Token: secret.New(token), Transport: transport})
		call := func(worker int) error {
			var out client.Invoked
			err := c.Invoke(context.Background(), of(worker), &out)
			if err == nil && !out.OK {
				err = fmt.Errorf("not ok")
			}
			return err
		}
		return call, transport.CloseIdleConnections, err
	}
}

// nodes measures calls to a node, and streams, against a plain echo.
func nodes(sh *sheet, calls, rounds int) error {
	s, err := newNodeStage(200*time.Millisecond, "")
	defer s.end()
	if err != nil {
		return err
	}
	fmt.Fprintln(sh.out, "### A call to a node (100 bytes there and back)")
	fmt.Fprintln(sh.out)
	fmt.Fprintln(sh.out, "| concurrency | way | p50 | p99 | calls/s | p50 ÷ echo | p50 − echo | CPU of the far end per call |")
	fmt.Fprintln(sh.out, "|---|---|---|---|---|---|---|---|")
	doors := s.doors()
	for _, concurrency := range []int{1, 16, 128} {
		results, err := measure(doors, request{}, concurrency, 2*calls, rounds)
		if err != nil {
			return err
		}
		base := results[0]
		for i, name := range []string{1: "gateway to node", 2: "engine to node"} {
			if i > 0 && concurrency == 1 {
				sh.took("a call, "+name+", 1 at once", "echo over a WebSocket", base.p50, results[i].p50, "go run ./bench -nodes")
			} else if i > 0 && concurrency == 128 {
				sh.rate("a call, "+name+", 128 at once", "echo over a WebSocket", base.rate, results[i].rate, "go run ./bench -nodes")
			}
		}
		for i, r := range results {
			fmt.Fprintf(sh.out, "| %d | %s | %s | %s | %.0f | %.2f | %s | %s |\n", concurrency, doors[i].name, us(r.p50), us(r.p99), r.rate,
				float64(r.p50)/float64(base.p50), us(r.p50-base.p50), us(r.cpu))
		}
	}
	fmt.Fprintln(sh.out)
	return s.streams(sh, rounds)
}

// streams measures how fast chunks come, and whether a reader that does not read
// keeps a node from saying that it lives.
func (s *nodeStage) streams(sh *sheet, rounds int) error {
	const chunks = 400
	const total = chunks * chunkSize
	input := fmt.Sprintf(`{"chunks":%d}`, chunks)
	ways := []struct {
		name string
		run  func() error
	}{
		{"plain WebSocket", func() error {
			if err := s.echo.ws.Write(s.ctx, websocket.MessageBinary, []byte(echoStream+strconv.Itoa(chunks))); err != nil {
				return err
			}
			for range chunks {
				<-s.echo.stream
			}
			return nil
		}},
		{"gateway → node", func() error {
			got := 0
			_, err := s.gateway.Call(s.ctx, gateway.Request{
				Node: nodeID, Function: nodeStream, Stream: true, Arguments: cmp.Arguments{Kwargs: map[string]json.RawMessage{"chunks": []byte(
					strconv.Itoa(chunks))}},
				Chunk: func(v json.RawMessage) error { got += len(v); return nil },
			})
			if err == nil && got != total {
				err = fmt.Errorf("%d bytes of %d", got, total)
			}
			return err
		}},
		{"engine → node", func() error {
			got := 0
			err := s.invoke(nodeStream, input, func(c capability.Chunk) {
				got += len(c.Data)
			})
			if err == nil && got != total {
				err = fmt.Errorf("%d bytes of %d", got, total)
			}
			return err
		}},
	}
	rates := make([][]float64, len(ways))
	for round := range rounds {
		for i := range ways {
			at := (i + round) % len(ways)
			began := time.Now()
			if err := ways[at].run(); err != nil {
				return fmt.Errorf("%s: %w", ways[at].name, err)
			}
			if round > 0 {
				rates[at] = append(rates[at], total/1e6/time.Since(began).Seconds())
			}
		}
	}
	fmt.Fprintln(sh.out, "### A stream of 128 KiB chunks from one node")
	fmt.Fprintln(sh.out)
	fmt.Fprintln(sh.out, "| way | MB/s | ÷ plain |")
	fmt.Fprintln(sh.out, "|---|---|---|")
	base := 0.0
	for i, w := range ways {
		slices.Sort(rates[i])
		rate := rates[i][len(rates[i])/2]
		if i == 0 {
			base = rate
		} else {
			sh.rows = append(sh.rows, sheetRow{
				"a stream of 128 KiB chunks, " + w.name, fmt.Sprintf("WebSocket %.0f MB/s", base),
				fmt.Sprintf("%.0f MB/s", rate), fmt.Sprintf("%.2f", rate/base), "go run ./bench -nodes",
			})
		}
		fmt.Fprintf(sh.out, "| %s | %.0f | %.2f |\n", w.name, rate, rate/base)
	}
	fmt.Fprintln(sh.out)
	before, err := s.beats(3 * time.Second)
	if err != nil {
		return err
	}
	stalled := make(chan error, 1)
	reading, over := make(chan struct{}), make(chan struct{})
	var once sync.Once
	go func() {
		_, err := s.gateway.Call(s.ctx, gateway.Request{
			Node: nodeID, Function: nodeStream, Stream: true, Arguments: cmp.Arguments{Kwargs: map[string]json.RawMessage{"chunks": []byte("400")}},
			Chunk: func(json.RawMessage) error { once.Do(func() { close(reading) }); <-over; return nil },
		})
		stalled <- err
	}()
	<-reading
	during, err := s.beats(3 * time.Second)
	close(over)
	if failed := <-stalled; err == nil {
		err = failed
	}
	fmt.Fprintf(sh.out, "Longest pause between heartbeats (one each 200 ms): %d ms; while a reader stalls: %d ms, and its stream then comes whole.\n\n", before.Milliseconds(), during.Milliseconds())
	return err
}

// beats is the longest time between two heartbeats of the gateway's node.
func (s *nodeStage) beats(within time.Duration) (longest time.Duration, err error) {
	var last time.Time
	for began := time.Now(); time.Since(began) < within; time.Sleep(5 * time.Millisecond) {
		n, ok := s.gateway.Fleet().Get(nodeID)
		if !ok {
			return 0, fmt.Errorf("the node has gone")
		}
		if !last.IsZero() && n.LastBeat.After(last) {
			longest = max(longest, n.LastBeat.Sub(last))
		}
		last = n.LastBeat
	}
	if since := time.Since(last); since > longest {
		longest = since
	}
	return longest, nil
}

// profileNodes writes where the time of one way goes; the far ends write theirs
// beside it.
func profileNodes(file string, way, calls int) error {
	s, err := newNodeStage(0, file)
	defer s.end()
	if err != nil {
		return err
	}
	doors := s.doors()
	if way < 0 || way >= len(doors) {
		return fmt.Errorf("there are the ways 0 to %d", len(doors)-1)
	}
	stop, err := profiled(file)
	if err != nil {
		return err
	}
	defer stop()
	_, rate, err := load(doors[way], request{}, 16, calls)
	if err != nil {
		return err
	}
	fmt.Printf("%s: %.0f calls/s\n", doors[way].name, rate)
	return nil
}
