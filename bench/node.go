package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/url"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/internal/nodes/messaging/natsdial"
	"github.com/junctor-run/junctor/internal/nodes/node"
	"github.com/junctor-run/junctor/internal/nodes/skill"
	"github.com/junctor-run/junctor/internal/nodes/skill/deviceaction"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
	"github.com/junctor-run/junctor/secret"
)

// What the bench's nodes offer besides the five reserved functions.
const (
	nodeRead   = "bench.read"
	nodeStream = "bench.stream"
)

const (
	// nodeInput has about a hundred bytes, and so has nodeAnswer.
	nodeInput  = `{"path":"/srv/data/lab/2026/temperature.csv","from":"2026-01-01","to":"2026-12-31","limit":10}`
	nodeAnswer = `{"room":"lab","mean":21.4,"min":18.9,"max":24.2,"samples":[20.1,21.2,22.3,21.8],"unit":"celsius"}`
	// chunkSize is that of the streams' chunks.
	chunkSize = 128 << 10
	// echoStream asks the echo for so many chunks.
	echoStream = "stream: "
)

// newNode is a device like any other, with seven functions.
func newNode(address, id, token, dir string) (*node.Node, *skill.Host, error) {
	dial, err := natsdial.Dialer(address, nil)
	if err != nil {
		return nil, nil, err
	}
	table := functions.New(0)
	chunk := json.RawMessage(`"` + string(letters(chunkSize-2)) + `"`)
	for _, f := range []functions.Function{
		{
			Name: nodeRead, Description: "Says how warm it was.", Effect: cmp.EffectRead,
			Handle: func(context.Context, functions.Call) (json.RawMessage, error) {
				return json.RawMessage(nodeAnswer), nil
			},
		},
		{
			Name: nodeStream, Description: "Sends as many chunks as are asked for.", Effect: cmp.EffectRead, Stream: true,
			Handle: func(ctx context.Context, c functions.Call) (json.RawMessage, error) {
				n := 0
				if err := json.Unmarshal(c.Args.Kwargs["chunks"], &n); err != nil {
					return nil, err
				}
				for range n {
					if err := c.Emit(ctx, chunk); err != nil {
						return nil, err
					}
				}
				return nil, nil
			},
		},
	} {
		if err := table.Register(f, false); err != nil {
			return nil, nil, err
		}
	}
	store, err := skill.OpenFiles(filepath.Join(dir, id))
	if err != nil {
		return nil, nil, err
	}
	host := skill.New(skill.Config{
		Node: id, Functions: table, Actions: new(deviceaction.Set), Store: store, Version: "bench",
		Refresh: func(context.Context) error { return nil }, // nothing is installed here
	})
	if err := skill.RegisterReserved(host, table, "server-agent", false); err != nil {
		return nil, nil, err
	}
	// Room for the highest concurrency: it is the way there that is measured.
	const room = 256
	n, err := node.New(node.Config{
		Dial: dial, Token: secret.New(token), ID: id, Software: wire.Software{Name: "bench", Version: "1"},
		Functions: table, Executor: functions.NewExecutor(functions.Config{Node: id, Functions: table, MaxConcurrent: room, Queue: room}),
		MaxConcurrent: room, Queue: room, HostStatus: func() cmp.Status { return host.Status(false, false) },
		Figures: func() (cpu, mem, gpu float64) { return 10, 10, 0 }, // a busy machine must not take its nodes out of the choice
	})
	return n, host, err
}

// untilStopped is a context that ends when the process is told to.
func untilStopped() (context.Context, context.CancelFunc) {
	return signal.NotifyContext(context.Background(), syscall.SIGTERM, os.Interrupt)
}

func letters(n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = 'a' + byte(i%26)
	}
	return b
}

// beNode is one node as a process; it says so when it has been let in, and ends
// when it is told to.
func beNode(address, id, token string) error {
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	n, host, err := newNode(address, id, token, dir)
	if err != nil {
		return err
	}
	defer host.Close()
	ended := make(chan error, 1)
	ctx, cancel := untilStopped()
	defer cancel()
	go func() { ended <- n.Run(ctx) }()
	select {
	case <-n.Joined():
	case err := <-ended:
		return err
	case <-time.After(30 * time.Second):
		cancel()
		return fmt.Errorf("the node was not let in: %+v (%w)", n.Status(), <-ended)
	}
	fmt.Println(`{"url":""}`)
	return <-ended
}

// beEcho is the yardstick: it sends back what it is sent, over one WebSocket
// connection that it has opened, as a node does.
func beEcho(address string) error {
	u, err := url.Parse(address)
	if err != nil {
		return err
	}
	u.Scheme = "ws"
	ctx, cancel := untilStopped()
	defer cancel()
	ws, _, err := websocket.Dial(ctx, u.String(), nil) //nolint:bodyclose // the library closes it
	if err != nil {
		return err
	}
	defer func() { _ = ws.CloseNow() }()
	ws.SetReadLimit(1 << 20)
	chunk := letters(chunkSize)
	fmt.Println(`{"url":""}`)
	for {
		_, data, err := ws.Read(ctx)
		if err != nil {
			return nil // it was told to end, or who measures has
		}
		if count, is := strings.CutPrefix(string(data), echoStream); is {
			n, err := strconv.Atoi(count)
			if err != nil {
				return err
			}
			for range n {
				if err := ws.Write(ctx, websocket.MessageBinary, chunk); err != nil {
					return err
				}
			}
			continue
		}
		if err := ws.Write(ctx, websocket.MessageBinary, data); err != nil {
			return err
		}
	}
}

// beNodePart is one of the far ends.
func beNodePart(args []string, profile string) error {
	if profile != "" {
		stop, err := profiled(profile)
		if err != nil {
			return err
		}
		defer stop()
	}
	switch {
	case len(args) == 2 && args[0] == "echo":
		return beEcho(args[1])
	case len(args) == 4 && args[0] == "node":
		return beNode(args[1], args[2], args[3])
	}
	return fmt.Errorf("no part %q", args)
}
