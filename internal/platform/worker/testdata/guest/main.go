//go:build wasip1

// The guest is a module for the tests: as a command it does what its first
// argument says, as a reactor it exports functions.
package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unsafe"
)

//go:wasmimport junctor call
func hostCall(ptr unsafe.Pointer, size uint32) int32

//go:wasmimport junctor reply
func hostReply(ptr unsafe.Pointer, size uint32) int32

// ask makes one host call.
func ask(method string, params ...any) string {
	request, _ := json.Marshal(map[string]any{"method": method, "params": params})
	n := hostCall(unsafe.Pointer(&request[0]), uint32(len(request)))
	if n <= 0 {
		return fmt.Sprint("refused: ", n)
	}
	reply := make([]byte, n)
	return string(reply[:hostReply(unsafe.Pointer(&reply[0]), uint32(n))])
}

func say(kind string, value any) {
	data, _ := json.Marshal(map[string]any{kind: value})
	fmt.Println(string(data))
}

var kept [][]byte

func main() {
	switch os.Args[1] {
	case "echo", "main":
		var in any
		data, _ := io.ReadAll(os.Stdin)
		if err := json.Unmarshal(data, &in); err != nil {
			say("error", err.Error())
			return
		}
		say("result", in)
	case "chunks":
		say("chunk", 1)
		say("chunk", "two")
		fmt.Print(`{"result":"end"}`)
	case "endless":
		for {
			say("chunk", 1)
		}
	case "loop":
		for {
		}
	case "sleep":
		time.Sleep(time.Hour)
	case "memory":
		for {
			kept = append(kept, make([]byte, 1<<20))
		}
	case "text":
		fmt.Println("hello")
	case "large":
		fmt.Println(strings.Repeat("x", 17<<20))
	case "largechunk":
		say("chunk", strings.Repeat("x", 1<<20))
	case "twice":
		say("result", 1)
		say("result", 2)
	case "error":
		say("error", map[string]any{"message": "on purpose"})
	case "exit":
		fmt.Fprintln(os.Stderr, "last words")
		os.Exit(3)
	case "nothing":
	case "call":
		say("result", ask("read", "file"))
	case "reach":
		var got []string
		if _, err := os.ReadFile("/etc/passwd"); err == nil {
			got = append(got, "a file")
		}
		if _, err := os.ReadDir("/"); err == nil {
			got = append(got, "a folder")
		}
		if _, err := os.StartProcess("/bin/true", nil, &os.ProcAttr{}); err == nil {
			got = append(got, "a program")
		}
		if len(os.Environ()) > 0 {
			got = append(got, "variables")
		}
		say("result", strings.Join(got, ", "))
	}
}

//go:wasmexport answer
func answer() int32 { return -42 }

//go:wasmexport half
func half() float64 { return 0.5 }

//go:wasmexport told
func told() { say("result", "told") }

//go:wasmexport takes
func takes(n int32) int32 { return n }
