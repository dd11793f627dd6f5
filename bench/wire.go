package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host"
	"github.com/junctor-run/junctor/protocol/router"
	"github.com/junctor-run/junctor/secret"
)

// wireToken is checked by the endpoint; the bare handler does not look.
const wireToken = "bench-wire-token"

// The one action of the wire's bench, and its answer.
const (
	wireParams = `{"moduleId":"bench","action":"LOOK_UP","content":{"text":"what is in the lab?","room":"lab","limit":10},"options":{"verbose":false}}`
	wireData   = `{"room":"lab","devices":[{"id":"lamp-1","kind":"lamp","on":true,"level":0.8},{"id":"door-2","kind":"door","open":false},{"id":"cam-3","kind":"camera","streaming":true}],"count":3}`
	wireAnswer = `{"text":"three devices","values":{"count":3},"data":` + wireData + `}`
)

func wireRequest() request {
	return request{"", "plugin.action.invoke", fixed(wireParams)}
}

// beWirePart is one of the two servers of the wire's bench.
func beWirePart(part string) error {
	switch part {
	case "bare":
		return serveAndAnnounce(bareHandler())
	case "endpoint":
		handler, err := wireEndpoint()
		if err != nil {
			return err
		}
		return serveAndAnnounce(handler)
	}
	return fmt.Errorf("no part %q", part)
}

// bareHandler is the least that answers the request over HTTP.
func bareHandler() http.Handler {
	answer := []byte(`{"ok":true,"result":` + wireAnswer + `}`)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if _, err := io.Copy(io.Discard, r.Body); err != nil {
			return
		}
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		_, _ = w.Write(answer) // a failed write means the caller is gone
	})
}

// wireEndpoint is an endpoint as the SDK makes it: token, parameters and result
// are checked on every call.
func wireEndpoint() (http.Handler, error) {
	endpoint, err := host.NewEndpoint(host.Module{
		ID: "bench", Name: "bench",
		Actions: []host.Action{{
			Name: "LOOK_UP", Description: "Says which devices are in a room.",
			Handle: func(_ context.Context, content, _ json.RawMessage) (host.ActionResult, error) {
				if len(content) == 0 {
					return host.ActionResult{}, capability.Errorf(capability.CodeInvalidInput, "bench", "there is no content")
				}
				return host.ActionResult{Text: "three devices", Values: json.RawMessage(`{"count":3}`), Data: json.RawMessage(wireData)}, nil
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	return endpoint.Handler(secret.New(wireToken)), nil
}

// routerDoor is our client: parameters and result are checked on every call.
func routerDoor(name, url string, hop *process) door {
	return door{name, hop, func(req request, workers int) (func(int) error, func(), error) {
		client, err := router.NewClient(router.ClientConfig{ID: "bench", BaseURL: url, Token: secret.New(wireToken)})
		if err != nil {
			return nil, nil, err
		}
		params := make([][]byte, workers)
		for i := range params {
			params[i] = req.params(i)
		}
		call := func(worker int) error {
			_, err := client.Invoke(context.Background(), req.method, params[worker])
			return err
		}
		return call, client.CloseIdle, nil
	}}
}

func wireServers() (bare, endpoint *process, err error) {
	self, err := os.Executable()
	if err != nil {
		return nil, nil, err
	}
	if bare, err = start(self, "-wire-part", "bare"); err != nil {
		return nil, nil, err
	}
	if endpoint, err = start(self, "-wire-part", "endpoint"); err != nil {
		bare.stop()
		return nil, nil, err
	}
	return bare, endpoint, nil
}

// wireEnds measures what each end of the protocol costs by itself and both together,
// against an exchange that checks nothing.
func wireEnds(sh *sheet, calls, rounds int) error {
	bare, endpoint, err := wireServers()
	if err != nil {
		return err
	}
	defer bare.stop()
	defer endpoint.stop()
	doors := []door{
		plainDoor("plain client, bare handler", bare.url, wireToken, bare),
		plainDoor("plain client, our endpoint", endpoint.url, wireToken, endpoint),
		routerDoor("our client, bare handler", bare.url, bare),
		routerDoor("our client, our endpoint", endpoint.url, endpoint),
	}
	fmt.Fprintln(sh.out, "### The wire's two ends (plugin.action.invoke, everything checked)")
	fmt.Fprintln(sh.out)
	fmt.Fprintln(sh.out, "| concurrency | who with whom | p50 | p99 | calls/s | p50 ÷ bare | p99 ÷ bare | rate ÷ bare | CPU of the server per call |")
	fmt.Fprintln(sh.out, "|---|---|---|---|---|---|---|---|---|")
	for _, concurrency := range []int{1, 8, 32} {
		results, err := measure(doors, wireRequest(), concurrency, 2*calls, rounds)
		if err != nil {
			return err
		}
		base := results[0]
		switch concurrency {
		case 1:
			sh.took("an action call, our router client to our endpoint, 1 at once", "plain client and bare handler", base.p50, results[3].p50,
				"go run ./bench -wire")
		case 32:
			sh.rate("the same, 32 at once", "plain client and bare handler", base.rate, results[3].rate, "go run ./bench -wire")
		}
		for i, r := range results {
			fmt.Fprintf(sh.out, "| %d | %s | %s | %s | %.0f | %.2f | %.2f | %.2f | %s |\n", concurrency, doors[i].name, us(r.p50), us(r.p99), r.rate,
				float64(r.p50)/float64(base.p50), float64(r.p99)/float64(base.p99), r.rate/base.rate, us(r.cpu))
		}
	}
	fmt.Fprintln(sh.out)
	return nil
}

// profileWire writes where the router client's time goes, the server being
// another process.
func profileWire(file string, calls int) error {
	bare, endpoint, err := wireServers()
	if err != nil {
		return err
	}
	defer bare.stop()
	defer endpoint.stop()
	stop, err := profiled(file)
	if err != nil {
		return err
	}
	defer stop()
	_, rate, err := load(routerDoor("our client, our endpoint", endpoint.url, endpoint), wireRequest(), 32, calls)
	if err != nil {
		return err
	}
	fmt.Printf("%.0f calls/s\n", rate)
	return nil
}
