//go:build linux

// Hostile is the program of the test extensions of package attack: each task is
// one attack. It says of every
// act what came of it:
//
//	HELD act: why      it was refused
//	BROKE act: what    it succeeded
//	CLAIMS act         the call says that it succeeded; the test looks outside
//	SAYS text          something for the test to judge
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// secret is what every victim that can be read holds.
const secret = "junctor canary: nobody inside may read this"

// victims are what the test made outside.
type victims struct {
	File, Dir, HomeFile, OtherWork, Database, Log, Token string
	Extensions                                           string // the folder of all of them
	PID, Daemon                                          int
	TCP, UDP, DNS, Public, Socket, Abstract, Proxy       string
	Names                                                []string // hosts or URLs to try
	N                                                    int      // how much
	Self                                                 string   // the work folder as it is called inside
}

var v victims

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	if len(os.Args) > 2 && strings.HasPrefix(os.Args[2], "{") {
		if err := json.Unmarshal([]byte(os.Args[2]), &v); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(2)
		}
	}
	v.Self, _ = os.Getwd()
	tasks := map[string]func(){
		"fine": func() { fmt.Println("fine") },
		"a1":   relativePaths, "a2": absolutePaths, "a3": links, "a4": hardLinks, "a5": renames, "a7": procPaths, "a8": daemonMemory, "a9": attributes,
		"a10": connects, "a11": datagrams, "a12": unixSockets, "a13": oddSockets, "a14": fetches, "a15": environment, "a16": forkBomb,
		"a17": eat, "a17split": eatSplit, "a18": burn, "a19out": endless, "a19err": endlessErr, "a19line": noNewline, "a20huge": hugeFile, "a20sparse": sparse,
		"a20tiny": tinyFiles, "a20tmp": fillTemp, "a21": ignoreTerm, "a22hang": daemonsHang, "a22exit": daemonsExit, "a23": foreignProcesses, "a24": privileges,
		"wait": wait, "daemon": daemon,
	}
	for name, f := range own() {
		tasks[name] = f
	}
	f := tasks[os.Args[1]]
	if f == nil {
		fmt.Fprintln(os.Stderr, "there is no task", os.Args[1])
		os.Exit(2)
	}
	f()
}

var saying sync.Mutex

func say(word, act string, detail any) {
	saying.Lock()
	defer saying.Unlock()
	fmt.Printf("%s %s: %v\n", word, act, detail)
}

// try reports an act that succeeded when err is nil.
func try(act string, err error) {
	if err == nil {
		say("BROKE", act, "it succeeded")
		return
	}
	say("HELD", act, cause(err))
}

// claims reports an act of which only the outside can tell whether it succeeded.
func claims(act string, err error) {
	if err == nil {
		say("CLAIMS", act, "")
		return
	}
	say("HELD", act, cause(err))
}

func cause(err error) string {
	var errno unix.Errno
	if errors.As(err, &errno) {
		return unix.ErrnoName(errno)
	}
	return strings.ReplaceAll(err.Error(), "\n", " ")
}

func reads(path string) error {
	data, err := os.ReadFile(path)
	if err == nil && !strings.Contains(string(data), secret) {
		err = fmt.Errorf("%d other bytes", len(data))
	}
	return err
}

func opens(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	_, err = f.Read(make([]byte, 1))
	return err
}

func writes(path string, flag int) error {
	f, err := os.OpenFile(path, flag, 0o600)
	if err != nil {
		return err
	}
	return f.Close()
}

func lists(path string) error {
	_, err := os.ReadDir(path)
	return err
}

func call(nr uintptr, args ...uintptr) error {
	var a [6]uintptr
	copy(a[:], args)
	if _, _, errno := unix.RawSyscall6(nr, a[0], a[1], a[2], a[3], a[4], a[5]); errno != 0 {
		return errno
	}
	return nil
}

func check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(9)
	}
}
