// Command bench measures what junctor adds to a call, on this machine, in one
// run: the same request sent to an endpoint directly, through a bare
// httputil.ReverseProxy, and through junctor with token check, policy, selection
// and audit on. The three are interleaved, so that noise hits all alike, and
// compared as ratios. The two ends of the wire, calls to nodes and the MCP door have
// baselines of their own. Everything runs on loopback as real processes and ends by
// itself. The table of docs/performance.md goes to standard output; how each figure
// came about, door by door, to standard error.
package main

import (
	"bytes"
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httputil"
	"net/url"
	"os"
	"runtime"
	"strings"
	"time"

	"github.com/junctor-run/junctor/protocol/router"
)

func main() {
	proxyFor := flag.String("proxy", "", "internal: be the reverse proxy for this URL")
	buffers := flag.Bool("buffers", false, "of -proxy: read a request before it is sent on")
	wirePart := flag.String("wire-part", "", "internal: be the bare handler or the endpoint of -wire")
	wireOnly := flag.Bool("wire", false, "measure the wire's two ends only")
	loadAt := flag.String("load", "", "internal: be the load generator of -profile")
	profileTo := flag.String("profile", "", "instead of measuring, write a CPU profile of the server under the read load (with -wire: of the router client) to this file")
	calls := flag.Int("calls", 1200, "calls per door, request and round")
	rounds := flag.Int("rounds", 7, "interleaved rounds")
	nodePart := flag.String("node-part", "", "internal: be the far end of -nodes: echo URL, or node URL ID TOKEN")
	nodesOnly := flag.Bool("nodes", false, "measure calls to nodes only")
	way := flag.Int("way", 1, "of -nodes -profile: 0 echo, 1 gateway, 2 engine, 3 HTTP")
	crowdOf := flag.Int("many", 0, "measure a server with so many nodes")
	stormOnly := flag.Bool("storm", false, "of -many: only until all are there")
	serveIn := flag.String("serve", "", "internal: be the server of -many in this home")
	mcpPart := flag.String("mcp-part", "", "internal: be an upstream of -mcp: KIND TOOLS")
	mcpOnly := flag.Bool("mcp", false, "measure the MCP door only")
	era := flag.String("era", eraLegacy, "of -mcp -profile: the revision of client and upstream")
	collector := flag.Bool("collector", false, "internal: be the collector of -otlp")
	otlpOnly := flag.Bool("otlp", false, "measure what sending each call to a collector costs only")
	what := flag.String("method", "tools/call", "of -mcp -profile: tools/call, with the name of a tool behind a space, or tools/list")
	flag.Parse()
	if *proxyFor != "" {
		beProxy(*proxyFor, *buffers)
		return
	}
	err, sh := error(nil), &sheet{out: os.Stderr}
	switch {
	case *serveIn != "":
		err = beServer(*serveIn, *profileTo)
	case *crowdOf > 0:
		err = crowded(*crowdOf, *calls, *profileTo, *stormOnly)
	case *nodePart != "":
		err = beNodePart(strings.Fields(*nodePart), *profileTo)
	case *nodesOnly && *profileTo != "":
		err = profileNodes(*profileTo, *way, 20**calls)
	case *nodesOnly:
		err = nodes(sh, *calls, *rounds)
	case *mcpPart != "":
		err = beMCPPart(strings.Fields(*mcpPart))
	case *mcpOnly && *profileTo != "":
		err = profileMCP(*profileTo, *era, *what, 20**calls)
	case *mcpOnly:
		err = mcpDoors(sh, *calls, *rounds)
	case *collector:
		err = beCollector()
	case *otlpOnly:
		err = telemetry(sh, *calls, *rounds)
	case *wirePart != "":
		err = beWirePart(*wirePart)
	case *wireOnly && *profileTo != "":
		err = profileWire(*profileTo, 20**calls)
	case *wireOnly:
		err = wireEnds(sh, *calls, *rounds)
	case *loadAt != "":
		err = beLoad(*loadAt, *calls)
	case *profileTo != "":
		err = profile(*profileTo, 20**calls)
	default:
		err = run(sh, *calls, *rounds)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "bench:", err)
		os.Exit(1)
	}
	if len(sh.rows) > 0 {
		sh.print(os.Stdout)
	}
}

// beProxy is the yardstick: the standard library's reverse proxy with the
// transport settings junctor itself uses towards endpoints. One that does not read a
// request before it sends it on cuts one in a hundred answers above 4 KiB.
func beProxy(target string, buffers bool) {
	u, err := url.Parse(target)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(2)
	}
	proxy := &httputil.ReverseProxy{
		Rewrite:   func(r *httputil.ProxyRequest) { r.SetURL(u) },
		Transport: router.DefaultTransport(),
	}
	handler := http.Handler(proxy)
	if buffers {
		handler = http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			body, err := io.ReadAll(r.Body)
			if err != nil {
				return
			}
			r.Body = io.NopCloser(bytes.NewReader(body))
			proxy.ServeHTTP(w, r)
		})
	}
	if err := serveAndAnnounce(handler); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(sh *sheet, calls, rounds int) error {
	fmt.Fprintf(sh.out, "%s, %d cores, %s, %d rounds of %d calls each\n\n", runtime.GOOS+"/"+runtime.GOARCH, runtime.NumCPU(),
		runtime.Version(), rounds, calls)
	stage, err := newStage()
	if err != nil {
		return err
	}
	defer stage.close()
	doors := []door{
		plainDoor("direct", stage.endpoint.url, stage.endpointToken, stage.endpoint),
		plainDoor("ReverseProxy", stage.proxy.url, stage.endpointToken, stage.proxy),
		plainDoor("junctor", stage.server.url, stage.operatorToken, stage.server),
	}
	for _, req := range requests() {
		fmt.Fprintf(sh.out, "### %s\n\n", req.name)
		fmt.Fprintln(sh.out, "| concurrency | door | p50 | p99 | calls/s | p50 ÷ proxy | rate ÷ proxy | CPU of the hop per call |")
		fmt.Fprintln(sh.out, "|---|---|---|---|---|---|---|---|")
		for _, concurrency := range []int{1, 16, 64} {
			results, err := measure(doors, req, concurrency, calls, rounds)
			if err != nil {
				return fmt.Errorf("%s: %w", req.name, err)
			}
			proxy := results[1]
			if concurrency == 1 {
				sh.took(req.name+", 1 at once", "ReverseProxy", proxy.p50, results[2].p50, "make bench")
			} else {
				sh.rate(fmt.Sprintf("%s, %d at once", req.name, concurrency), "ReverseProxy", proxy.rate, results[2].rate, "make bench")
			}
			for i, r := range results {
				fmt.Fprintf(sh.out, "| %d | %s | %s | %s | %.0f | %.2f | %.2f | %s |\n", concurrency, doors[i].name, us(r.p50), us(r.p99), r.rate,
					float64(r.p50)/float64(proxy.p50), r.rate/proxy.rate, us(r.cpu))
			}
		}
		fmt.Fprintln(sh.out)
	}
	fmt.Fprintf(sh.out, "Memory after the load: junctor %s, proxy %s\n\n", mib(stage.server.rss()), mib(stage.proxy.rss()))
	stage.close()
	if err := wireEnds(sh, calls, rounds); err != nil {
		return err
	}
	if err := nodes(sh, calls, rounds); err != nil {
		return err
	}
	if err := mcpDoors(sh, calls, rounds); err != nil {
		return err
	}
	if err := telemetry(sh, calls, rounds); err != nil {
		return err
	}
	if err := engineAlone(sh); err != nil {
		return err
	}
	if err := startAndSize(sh); err != nil {
		return err
	}
	return parts(sh)
}

func us(d time.Duration) string { return fmt.Sprintf("%.0f µs", float64(d)/float64(time.Microsecond)) }

func mib(n int64) string { return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20)) }

func serveAndAnnounce(h http.Handler) error {
	listener, err := listenLoopback()
	if err != nil {
		return err
	}
	fmt.Printf("{\"url\":\"http://%s\"}\n", listener.Addr())
	server := &http.Server{Handler: h, ReadHeaderTimeout: 10 * time.Second}
	return server.Serve(listener)
}
