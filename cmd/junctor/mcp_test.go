package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"strings"
)

// mcpServer is a small MCP server for scripts: it lists what the file of its first
// argument holds, whatever that is, and every call reports its environment. A
// call with read or write names a file, and its answer reports what came of that.
func mcpServer() {
	in := bufio.NewScanner(os.Stdin)
	in.Buffer(nil, 1<<20)
	fmt.Fprintln(os.Stderr, "mcpserver is up")
	for in.Scan() {
		var m struct {
			ID     json.RawMessage
			Method string
			Params struct {
				Arguments json.RawMessage
			}
		}
		if json.Unmarshal(in.Bytes(), &m) != nil || m.ID == nil {
			continue
		}
		answer := `"error":{"code":-32601,"message":"no such method"}`
		switch m.Method {
		case "initialize":
			answer = `"result":{"protocolVersion":"2025-06-18","serverInfo":{"name":"mcpserver","version":"1"},"capabilities":{"tools":{}}}`
		case "ping":
			answer = `"result":{}`
		case "tools/list":
			list, err := os.ReadFile(os.Args[1])
			if err != nil {
				os.Exit(1)
			}
			answer = `"result":{"tools":` + strings.ReplaceAll(string(list), "\n", " ") + `}`
		case "tools/call":
			var act struct{ Read, Write string }
			_ = json.Unmarshal(m.Params.Arguments, &act)
			text, _ := json.Marshal(try(act.Read, act.Write) + "called with " + string(m.Params.Arguments) + ", GREETING is " +
				os.Getenv("GREETING") + ", TOKEN is " + os.Getenv("TOKEN"))
			answer = `"result":{"content":[{"type":"text","text":` + string(text) + `}]}`
		}
		fmt.Printf(`{"jsonrpc":"2.0","id":%s,%s}`+"\n", m.ID, answer)
	}
}

// try reads one file and writes another, unless their names are empty, and reports the outcome.
func try(read, write string) (report string) {
	if read != "" {
		data, err := os.ReadFile(read)
		report += fmt.Sprintf("read %d bytes, %v; ", len(data), err)
	}
	if write != "" {
		report += fmt.Sprintf("wrote, %v; ", os.WriteFile(write, []byte("permit (principal, action, resource);"), 0o600))
	}
	return report
}
