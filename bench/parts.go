package main

import (
	"bufio"
	"bytes"
	"cmp"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
)

// part is a benchmark that stands beside the code it measures.
type part struct {
	what         string
	pkg          string
	bench        string // as go test takes it, exact but for the number of processors
	benchtime    string
	metric, unit string
	scale        float64 // from the metric to the unit
	budget       float64 // in the unit; 0 for none
	plain        string  // a metric of the same run to compare with, in place of a budget
	against      string
}

func partsList() []part {
	return []part{
		{
			what: "decode a result of 840 bytes, passed through", pkg: "./protocol/router", bench: "DecodeResultPassThrough", metric: "ns/op",
			unit: "µs", scale: 1e-3,
		},
		{
			what: "an action call through the SDK's handler, no network", pkg: "./host", bench: "EndpointInvoke", metric: "ns/op", unit: "µs",
			scale: 1e-3,
		},
		{
			what: "catalog of 100,000: apply 50 entries, compile a context", pkg: "./internal/core/catalog/compile",
			bench: "100000/apply_50_entries_and_compile", benchtime: "50x", metric: "p99-µs", unit: "ms p99", scale: 1e-3, budget: 25,
		},
		{
			what: "catalog of 100,000: compile a new context", pkg: "./internal/core/catalog/compile", bench: "100000/compile_a_context",
			benchtime: "50x", metric: "p99-µs", unit: "ms p99", scale: 1e-3, budget: 5,
		},
		{
			what: "catalog of 100,000: compile it again", pkg: "./internal/core/catalog/compile", bench: "100000/compile_again", benchtime: "50x",
			metric: "p99-µs", unit: "µs p99", scale: 1, budget: 50,
		},
		{
			what: "choose among 64 candidates", pkg: "./internal/core/catalog/compile", bench: "Select64", metric: "p99-µs", unit: "µs p99",
			scale: 1, budget: 50,
		},
		{
			what: "rebuild a catalog of 100,000", pkg: "./internal/core/catalog/compile", bench: "Rebuild100000", benchtime: "5x",
			metric: "p99-µs", unit: "ms p99", scale: 1e-3, budget: 1000,
		},
		{
			what: "search 100,000 tools for four words", pkg: "./internal/core/catalog/search", bench: "100000/query/delete-the-image-of-a-report",
			metric: "ns/op", unit: "ms", scale: 1e-6,
		},
		{
			what: "one change sent to 200 subscribers in 20 contexts", pkg: "./internal/core/catalog/publish", bench: "200Subscribers",
			benchtime: "20x", metric: "ns/op", unit: "ms", scale: 1e-6,
		},
		{
			what: "one node's change among 1,000", pkg: "./internal/core/catalog", bench: "NodesChange/1000_nodes/1_together", benchtime: "10x",
			metric: "µs/node", unit: "ms", scale: 1e-3,
		},
		{
			what: "audit append, on disk, one writer", pkg: "./internal/store/segment", bench: "AppendSynced/writers=1", metric: "p99-µs",
			unit: "ms p99", scale: 1e-3, budget: 5,
		},
		{
			what: "audit append, on disk, 64 writers", pkg: "./internal/store/segment", bench: "AppendSynced/writers=64", metric: "records/s",
			unit: "records/s", scale: 1, budget: 20000,
		},
		{
			what: "audit append, written", pkg: "./internal/store/segment", bench: "AppendWritten/writers=1", metric: "p50-µs", unit: "µs",
			scale: 1,
		},
		{
			what: "a slash command routed among 1,000", pkg: "./internal/core/command", bench: "Route1000", metric: "ns/op", unit: "µs",
			scale: 1e-3, budget: 100,
		},
		{
			what: "from the engine to an extension's executor and back", pkg: "./internal/extensions/runner", bench: "Execute", metric: "ns/op",
			unit: "µs", scale: 1e-3, budget: 1000,
		},
		{
			what: "clean an output of 256 KiB", pkg: "./internal/extensions/exec/tool", bench: "Clean", metric: "ns/op", unit: "ms", scale: 1e-6,
			budget: 10,
		},
		{
			what: "start a program in sandbox T3, helpers made ahead: added", pkg: "./internal/platform/sandbox", bench: "Spawn/T3",
			benchtime: "60x", metric: "added-p50-ms", unit: "ms", scale: 1, plain: "plain-p50-ms", against: "fork and exec",
		},
		{
			what: "start a program in sandbox T2, helpers made ahead: added", pkg: "./internal/platform/sandbox", bench: "Spawn/T2",
			benchtime: "60x", metric: "added-p50-ms", unit: "ms", scale: 1, plain: "plain-p50-ms", against: "fork and exec",
		},
		{
			what: "a whole slash command in T3, request to answer: added", pkg: "./internal/server", bench: "Run", benchtime: "60x",
			metric: "added-p95-ms", unit: "ms p95", scale: 1, budget: 50,
		},
		{
			what: "a call of JavaScript in a sandboxed worker", pkg: "./internal/platform/worker", bench: "Call/javascript-spares",
			benchtime: "60x", metric: "call-p50-ms", unit: "ms", scale: 1, plain: "plain-p50-ms", against: "fork and exec",
		},
		{
			what: "the screen of a terminal, recordings of real programs", pkg: "./internal/taskagents/term", bench: "Screen/all", metric: "MB/s",
			unit: "MB/s", scale: 1,
		},
		{
			what: "a task agent's state from its screen", pkg: "./internal/taskagents/programs/detect", bench: "Look", metric: "ns/op",
			unit: "µs", scale: 1e-3,
		},
		{
			what: "start a program in a task agent's terminal", pkg: "./internal/taskagents/sessions", bench: "Spawn", benchtime: "50x",
			metric: "µs-to-run", unit: "ms", scale: 1e-3,
		},
		{
			what: "the board of tasks: a change among 200, drawn", pkg: "./cmd/junctor", bench: "Board200", metric: "ns/op", unit: "ms", scale: 1e-6,
			budget: 16,
		},
		{
			what: "junctor setup with its server: three clients, eight confined MCP servers", pkg: "./cmd/junctor", bench: "Setup", benchtime: "3x",
			metric: "ns/op", unit: "s", scale: 1e-9, budget: 20,
		},
		{
			what: "a policy file changed, 1,000 rules loaded again", pkg: "./internal/platform/policyfiles", bench: "Reload1000", benchtime: "20x",
			metric: "ns/op", unit: "ms", scale: 1e-6, budget: 100,
		},
		{
			what: "MCP tools/call over HTTP, client included", pkg: "./internal/serve/mcpserve", bench: "Call", metric: "ns/op", unit: "µs",
			scale: 1e-3,
		},
	}
}

// parts measures the benchmarks beside the code, one after the other.
func parts(sh *sheet) error {
	for _, p := range partsList() {
		p.benchtime = cmp.Or(p.benchtime, "300ms")
		rerun := "go test -run '^$' -bench '" + exact(p.bench) + "' -benchtime " + p.benchtime + " " + p.pkg
		out, err := exec.Command("go", "test", "-run", "^$", "-bench", exact(p.bench), "-benchtime", p.benchtime, p.pkg).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w\n%s", rerun, err, out)
		}
		fmt.Fprintf(sh.out, "%s\n", out)
		got, err := metrics(out)
		if err != nil {
			return fmt.Errorf("%s: %w", rerun, err)
		}
		ours, there := got[p.metric]
		if !there {
			return fmt.Errorf("%s: there is no %s in\n%s", rerun, p.metric, out)
		}
		short := "go test -bench '" + exact(p.bench) + "' " + p.pkg
		if p.plain != "" {
			base := got[p.plain] * p.scale
			sh.rows = append(sh.rows, sheetRow{
				p.what, p.against + " " + amount(base, p.unit), amount(ours*p.scale, p.unit),
				fmt.Sprintf("%.2f", ours*p.scale/base), short,
			})
			continue
		}
		sh.budget(p.what, p.unit, p.budget, ours*p.scale, short)
	}
	return nil
}

// exact is a pattern for one benchmark, and for none whose name only begins like it.
func exact(bench string) string {
	levels := strings.Split(bench, "/")
	for i, l := range levels {
		levels[i] = "^" + l + "$"
	}
	levels[0] = "^Benchmark" + levels[0][1:]
	return strings.Join(levels, "/")
}

// metrics are those of the one benchmark in the output of go test, by unit.
func metrics(out []byte) (map[string]float64, error) {
	var found map[string]float64
	lines := bufio.NewScanner(bytes.NewReader(out))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		if found != nil {
			return nil, fmt.Errorf("more than one benchmark ran:\n%s", out)
		}
		found = make(map[string]float64)
		for i := 2; i+1 < len(fields); i += 2 {
			n, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, err
			}
			found[fields[i+1]] = n
		}
	}
	if found == nil {
		return nil, fmt.Errorf("no benchmark ran:\n%s", out)
	}
	return found, lines.Err()
}
