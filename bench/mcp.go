package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/junctor-run/junctor/protocol/router"
)

// The eras of the MCP bench, on both sides of the plane.
const (
	eraLegacy = "2025-11-25"
	eraModern = "2026-07-28"
)

// callWrite is a call of writeTool.
const callWrite = "tools/call, outside effects"

// methodConnect is a handshake and the first list.
const methodConnect = "connect"

// writeTool is the tool that counts as one with outside effects, as any without a hint does.
const writeTool = "tool_0002"

// benchTool is a definition of the size that tools have in the field.
func benchTool(i int) string {
	tool := fmt.Sprintf(`{"name":"tool_%04d","description":"Looks something up in the register number %d and says what is there, for as many rows as are asked for.","inputSchema":{"type":"object","properties":{"query":{"type":"string","description":"What to look for, in plain words."},"limit":{"type":"integer","minimum":1,"maximum":100,"description":"How many rows at most."},"exact":{"type":"boolean","description":"Whether only equal rows count."}},"required":["query"]},"annotations":{"readOnlyHint":true}}`, i, i)
	if strings.Contains(tool, writeTool) {
		tool = strings.Replace(tool, `,"annotations":{"readOnlyHint":true}`, "", 1)
	}
	return tool
}

const benchResult = `{"content":[{"type":"text","text":"three rows: lamp-1 is on at 0.8, door-2 is closed, cam-3 is streaming"}],"structuredContent":{"rows":[{"id":"lamp-1","on":true,"level":0.8},{"id":"door-2","open":false},{"id":"cam-3","streaming":true}],"count":3}}`

// beMCPPart is the upstream of the MCP bench: raw, the least that uses the
// protocol, in one era or the other, or the SDK's server. args are its kind and how
// many tools it has.
func beMCPPart(args []string) error {
	tools, err := strconv.Atoi(args[1])
	if err != nil {
		return err
	}
	switch args[0] {
	case eraLegacy, eraModern:
		return serveAndAnnounce(rawUpstream(args[0], tools))
	case "sdk-" + eraLegacy, "sdk-" + eraModern:
		s := mcp.NewServer(&mcp.Implementation{Name: "bench", Version: "1"}, nil)
		for i := range tools {
			var t mcp.Tool
			if err := json.Unmarshal([]byte(benchTool(i)), &t); err != nil {
				return err
			}
			s.AddTool(&t, func(context.Context, *mcp.CallToolRequest) (*mcp.CallToolResult, error) {
				return &mcp.CallToolResult{Content: []mcp.Content{&mcp.TextContent{Text: "three rows"}}}, nil
			})
		}
		return serveAndAnnounce(mcp.NewStreamableHTTPHandler(func(*http.Request) *mcp.Server { return s }, &mcp.StreamableHTTPOptions{
			Stateless: args[0] == "sdk-"+eraModern, JSONResponse: true,
		}))
	}
	return fmt.Errorf("no part %q", args[0])
}

func rawUpstream(era string, tools int) http.Handler {
	all := make([]string, tools)
	for i := range all {
		all[i] = benchTool(i)
	}
	modern := ""
	if era == eraModern {
		modern = `,"resultType":"complete"`
	}
	list := `{"tools":[` + strings.Join(all, ",") + `]` + strings.ReplaceAll(modern, `complete"`,
		`complete","ttlMs":600000,"cacheScope":"private"`) + `}`
	call := benchResult[:len(benchResult)-1] + modern + `}`
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return
		}
		var m struct {
			ID     json.RawMessage `json:"id"`
			Method string          `json:"method"`
		}
		if r.Method != http.MethodPost || json.Unmarshal(body, &m) != nil {
			http.Error(w, "", http.StatusMethodNotAllowed)
			return
		}
		result := ""
		switch m.Method {
		case "initialize":
			if era == eraLegacy {
				w.Header().Set("Mcp-Session-Id", "bench")
				result = `{"protocolVersion":"` + eraLegacy + `","capabilities":{"tools":{}},"serverInfo":{"name":"bench","version":"1"}}`
			}
		case "server/discover":
			if era == eraModern {
				result = `{"resultType":"complete","supportedVersions":["` + eraModern +
					`"],"capabilities":{"tools":{}},"ttlMs":600000,"cacheScope":"public"}`
			}
		case "tools/list":
			result = list
		case "tools/call":
			result = call
		default:
			if len(m.ID) == 0 {
				w.WriteHeader(http.StatusAccepted)
				return
			}
		}
		answer := []byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"result":` + result + `}`)
		w.Header().Set("Content-Type", "application/json")
		if result == "" {
			answer = []byte(`{"jsonrpc":"2.0","id":` + string(m.ID) + `,"error":{"code":-32601,"message":"no such method"}}`)
			if era == eraModern {
				w.WriteHeader(http.StatusNotFound)
			}
		}
		_, _ = w.Write(answer)
	})
}

// mcpDoor is a client of an era: it has its session, where there are sessions, and
// sends one request over and over.
func mcpDoor(name, url, token, era string, hop *process) door {
	return door{name, hop, func(req request, workers int) (func(int) error, func(), error) {
		transport := router.DefaultTransport()
		client := &http.Client{Transport: transport}
		head := http.Header{
			"Content-Type": {"application/json"}, "Accept": {"application/json, text/event-stream"},
			"Mcp-Protocol-Version": {era},
		}
		if token != "" {
			head.Set("Authorization", "Bearer "+token)
		}
		send := func(head http.Header, body string, want string) (http.Header, error) {
			r, err := http.NewRequest(http.MethodPost, url, strings.NewReader(body))
			if err != nil {
				return nil, err
			}
			r.Header = head
			resp, err := client.Do(r)
			if err != nil {
				return nil, err
			}
			defer resp.Body.Close()
			data, err := io.ReadAll(resp.Body)
			if err == nil && !bytes.Contains(data, []byte(want)) {
				err = fmt.Errorf("%s: HTTP %d: %.300s", body, resp.StatusCode, data)
			}
			return resp.Header, err
		}
		initialize := `{"jsonrpc":"2.0","id":0,"method":"initialize","params":{"protocolVersion":"` + era +
			`","capabilities":{},"clientInfo":{"name":"bench","version":"1"}}}`
		if req.method == methodConnect {
			return func(int) error {
				head := head.Clone()
				got, err := send(head, initialize, "serverInfo")
				if err != nil {
					return err
				}
				head.Set("Mcp-Session-Id", got.Get("Mcp-Session-Id"))
				if _, err := send(head, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""); err != nil {
					return err
				}
				_, err = send(head, `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, `"tools":[{`)
				return err
			}, transport.CloseIdleConnections, nil
		}
		tool := cmp.Or(req.name, "tool_0001")
		meta := ""
		if era == eraModern {
			meta = `,"_meta":{"io.modelcontextprotocol/protocolVersion":"` + era + `","io.modelcontextprotocol/clientCapabilities":{}}`
			head.Set("Mcp-Method", req.method)
			if req.method == "tools/call" {
				head.Set("Mcp-Name", tool)
			}
		} else {
			got, err := send(head, initialize, "serverInfo")
			if err != nil {
				return nil, nil, err
			}
			head.Set("Mcp-Session-Id", got.Get("Mcp-Session-Id"))
			if _, err := send(head, `{"jsonrpc":"2.0","method":"notifications/initialized"}`, ""); err != nil {
				return nil, nil, err
			}
		}
		params := strings.TrimPrefix(meta, ",")
		want := `"tools":[{`
		if req.method == "tools/call" {
			params = `"name":"` + tool + `","arguments":{"query":"what is in the lab?","limit":10,"exact":false}` + meta
			want = "three rows"
		}
		bodies := make([]string, workers)
		for i := range bodies {
			bodies[i] = fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":%q,"params":{%s}}`, i+1, req.method, params)
		}
		return func(worker int) error {
			_, err := send(head, bodies[worker], want)
			return err
		}, transport.CloseIdleConnections, nil
	}}
}

// mcpStage is a server of ours with one upstream of each kind, each with a bare
// proxy beside it.
type mcpStage struct {
	dir       string
	server    *process
	token     string
	upstreams map[string]*process
	proxies   map[string]*process
}

func mcpHome(dir string) (string, error) {
	home := filepath.Join(dir, "home")
	if err := os.MkdirAll(filepath.Join(home, "policy"), 0o700); err != nil {
		return "", err
	}
	if err := os.WriteFile(filepath.Join(home, "policy", "all.cedar"), []byte(`@id("all") permit (principal, action, resource);`),
		0o600); err != nil {
		return "", err
	}
	var views strings.Builder
	views.WriteString("mcp:\n  page_size: 1000\n  views:\n")
	for _, tools := range []int{10, 1000} {
		for _, era := range []string{eraLegacy, eraModern} {
			for _, name := range []string{upstreamName(era, tools), "sdk-" + upstreamName(era, tools)} {
				fmt.Fprintf(&views, "    - {name: %[1]s, modules: [mcp.%[1]s], own_names: true, exposure: full}\n", name)
			}
		}
	}
	return home, os.WriteFile(filepath.Join(home, "config.yaml"), []byte(views.String()), 0o600)
}

func upstreamName(era string, tools int) string { return fmt.Sprintf("up-%s-%d", era, tools) }

func newMCPStage(profile string) (s *mcpStage, err error) {
	s = &mcpStage{upstreams: make(map[string]*process), proxies: make(map[string]*process)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	if s.dir, err = os.MkdirTemp("", "junctor-bench-"); err != nil {
		return s, err
	}
	self, err := os.Executable()
	if err != nil {
		return s, err
	}
	home, err := mcpHome(s.dir)
	if err != nil {
		return s, err
	}
	if profile != "" {
		s.server, err = start(self, "-serve", home, "-profile", profile)
	} else {
		s.server, err = start(binary, "--home", home, "serve", "--listen", "127.0.0.1:0")
	}
	if err != nil {
		return s, err
	}
	token, err := os.ReadFile(filepath.Join(home, "run", "agent.token"))
	if err != nil {
		return s, err
	}
	s.token = strings.TrimSpace(string(token))
	admin := &stage{}
	for _, tools := range []int{10, 1000} {
		for _, era := range []string{eraLegacy, eraModern} {
			for _, kind := range []string{era, "sdk-" + era} {
				name := strings.Replace(kind, era, upstreamName(era, tools), 1)
				if s.upstreams[name], err = start(self, "-mcp-part", fmt.Sprintf("%s %d", kind, tools)); err != nil {
					return s, err
				}
				if tools > 10 && kind != era {
					continue // only its lists are looked at
				}
				if s.proxies[name], err = start(self, "-proxy", s.upstreams[name].url); err != nil {
					return s, err
				}
				if s.proxies[name+" lists"], err = start(self, "-proxy", s.upstreams[name].url, "-buffers"); err != nil {
					return s, err
				}
				if _, err = admin.cli(home, "upstreams", "add", name, "--url", s.upstreams[name].url+"/mcp", "--local", "--trust-hints"); err != nil {
					return s, err
				}
			}
		}
	}
	return s, nil
}

func (s *mcpStage) close() {
	s.server.stop()
	for _, p := range s.proxies {
		p.stop()
	}
	for _, p := range s.upstreams {
		p.stop()
	}
	_ = os.RemoveAll(s.dir)
}

// mcpDoors compares the MCP endpoint with a bare reverse proxy before the same
// upstream, and its lists with those of the SDK's server.
func mcpDoors(sh *sheet, calls, rounds int) error {
	s, err := newMCPStage("")
	if err != nil {
		return err
	}
	defer s.close()
	fmt.Fprintf(sh.out, "### MCP, clients and upstreams of both eras\n\nMemory idle, %d upstreams: %s\n\n", len(s.proxies)/2,
		mib(s.server.rss()))
	fmt.Fprintln(sh.out, "| what | client | upstream | concurrency | door | p50 | p99 | calls/s | p50 ÷ 2nd | p99 ÷ 2nd | rate ÷ 2nd | CPU of the hop per call |")
	fmt.Fprintln(sh.out, "|---|---|---|---|---|---|---|---|---|---|---|---|")
	row := func(what, era, far string, concurrency, calls int, doors ...door) error {
		method := "tools/list"
		if what == "tools/call" || strings.HasPrefix(what, methodConnect) {
			method, _, _ = strings.Cut(what, ",")
		}
		tool := ""
		if what == callWrite {
			method, tool = "tools/call", writeTool
		}
		results, err := measure(doors, request{name: tool, method: method}, concurrency, calls, rounds)
		if err != nil {
			return err
		}
		proxy := results[1]
		const rerun = "go run ./bench -mcp"
		_, tools, _ := strings.Cut(what, ", ")
		switch {
		case what == "tools/call" && concurrency == 1 && strings.HasSuffix(far, "bare"):
			sh.took("MCP tools/call, "+era+", 1 at once", "ReverseProxy", proxy.p50, results[2].p50, rerun)
		case what == callWrite:
			sh.rate(fmt.Sprintf("MCP tools/call without hints, %d at once, an SDK's server behind", concurrency), "ReverseProxy",
				proxy.rate, results[2].rate, rerun)
		case what == "tools/call" && strings.HasSuffix(far, "SDK") && concurrency > 1:
			sh.rate("MCP tools/call, "+era+", 16 at once, an SDK's server behind", "ReverseProxy", proxy.rate, results[2].rate, rerun)
		case strings.HasPrefix(what, "tools/list"):
			sh.rate("MCP tools/list, "+tools+" tools, "+era+", 4 at once", "SDK server", results[3].rate, results[2].rate, rerun)
		case strings.HasPrefix(what, methodConnect):
			sh.took("MCP handshake and list, "+tools+" tools, "+era, "SDK server", results[1].p50, results[2].p50, rerun)
		}
		for i, r := range results {
			fmt.Fprintf(sh.out, "| %s | %s | %s | %d | %s | %s | %s | %.0f | %.2f | %.2f | %.2f | %s |\n", what, era, far, concurrency,
				doors[i].name, us(r.p50), us(r.p99), r.rate,
				float64(r.p50)/float64(proxy.p50), float64(r.p99)/float64(proxy.p99), r.rate/proxy.rate, us(r.cpu))
		}
		return nil
	}
	for _, tools := range []int{10, 1000} {
		for _, era := range []string{eraLegacy, eraModern} {
			name := upstreamName(era, tools)
			direct := mcpDoor("direct", s.upstreams[name].url, "", era, s.upstreams[name])
			proxy := mcpDoor("ReverseProxy", s.proxies[name].url, "", era, s.proxies[name])
			ours := mcpDoor("junctor", s.server.url+"/mcp/"+name, s.token, era, s.server)
			sdk := mcpDoor("SDK server", s.upstreams["sdk-"+name].url, "", era, s.upstreams["sdk-"+name])
			if tools == 10 {
				other := map[string]string{eraLegacy: eraModern, eraModern: eraLegacy}[era]
				bridged := mcpDoor("junctor, bridged", s.server.url+"/mcp/"+upstreamName(other, tools), s.token, era, s.server)
				other = "sdk-" + name
				behind := []door{
					mcpDoor("direct", s.upstreams[other].url, "", era, s.upstreams[other]),
					mcpDoor("ReverseProxy", s.proxies[other].url, "", era, s.proxies[other]),
					mcpDoor("junctor", s.server.url+"/mcp/"+other, s.token, era, s.server),
				}
				for _, concurrency := range []int{1, 16} {
					if err := row("tools/call", era, era+", bare", concurrency, calls, direct, proxy, ours, bridged); err != nil {
						return err
					}
					if err := row("tools/call", era, era+", SDK", concurrency, calls, behind...); err != nil {
						return err
					}
				}
				for _, concurrency := range []int{1, 16, 64} {
					if era == eraLegacy {
						if err := row(callWrite, era, era+", SDK", concurrency, calls, behind...); err != nil {
							return err
						}
					}
				}
			}
			lists := mcpDoor("ReverseProxy", s.proxies[name+" lists"].url, "", era, s.proxies[name+" lists"])
			if err := row(fmt.Sprintf("tools/list, %d", tools), era, era, 4, max(calls*10/tools, 100), direct, lists, ours, sdk); err != nil {
				return err
			}
			if era == eraLegacy { // before the next, so that one round opens no more than the door keeps
				if err := row(fmt.Sprintf("%s, %d", methodConnect, tools), era, era, 1, 100, direct, sdk, ours); err != nil {
					return err
				}
			}
		}
	}
	fmt.Fprintf(sh.out, "\nMemory after the load: %s\n\n", mib(s.server.rss()))
	return mcpMemory(sh)
}

// profileMCP writes where the server's time goes under calls of one era.
func profileMCP(file, era, what string, calls int) error {
	s, err := newMCPStage(file)
	if err != nil {
		return err
	}
	defer s.close()
	name := upstreamName(era, 10)
	method, tool, _ := strings.Cut(what, " ")
	_, rate, err := load(mcpDoor("junctor", s.server.url+"/mcp/"+name, s.token, era, s.server), request{name: tool, method: method}, 16, calls)
	if err != nil {
		return err
	}
	fmt.Printf("%.0f calls/s\n", rate)
	return nil
}

// mcpMemory measures the memory of an idle server with one upstream, and of sessions
// whose clients list a thousand tools and never return.
func mcpMemory(sh *sheet) error {
	const sessions = 1000
	dir, err := os.MkdirTemp("", "junctor-bench-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	home, err := mcpHome(dir)
	if err != nil {
		return err
	}
	p, err := start(binary, "--home", home, "serve", "--listen", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer p.stop()
	token, err := os.ReadFile(filepath.Join(home, "run", "agent.token"))
	if err != nil {
		return err
	}
	admin := &stage{}
	for _, tools := range []int{10, 1000} {
		up, err := start(self, "-mcp-part", fmt.Sprintf("%s %d", eraLegacy, tools))
		if err != nil {
			return err
		}
		defer up.stop()
		if _, err := admin.cli(home, "upstreams", "add", upstreamName(eraLegacy, tools), "--url", up.url, "--local",
			"--trust-hints"); err != nil {
			return err
		}
		if tools == 10 {
			time.Sleep(5 * time.Second) // idle is what is left when the start is over
			fmt.Fprintf(sh.out, "Memory idle with one upstream of 10 tools: %s\n", mib(p.rss()))
		}
		door := mcpDoor("junctor", p.url+"/mcp/"+upstreamName(eraLegacy, tools), strings.TrimSpace(string(token)), eraLegacy, p)
		before := p.rss()
		for range sessions {
			call, end, err := door.open(request{method: "tools/list"}, 1)
			if err != nil {
				return err
			}
			if err := call(0); err != nil {
				return err
			}
			end()
		}
		fmt.Fprintf(sh.out, "An abandoned session that has listed %d tools: %.1f KiB\n", tools, float64(p.rss()-before)/sessions/1024)
	}
	fmt.Fprintln(sh.out)
	return nil
}
