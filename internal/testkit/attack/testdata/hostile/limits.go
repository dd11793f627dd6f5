//go:build linux

package main

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

func wait() { time.Sleep(600 * time.Second) }

func again(args ...string) *exec.Cmd { return exec.Command("/proc/self/exe", args...) }

// self is a program that children can execute: ours, or at least a copy of it.
func self() string {
	if _, err := os.Stat("/proc/self/exe"); err == nil {
		return "/proc/self/exe"
	}
	return os.Args[0]
}

func forkBomb() {
	started := 0
	for range v.N {
		// A plain process that does nothing, so that memory is not what stops it.
		if err := exec.Command("/bin/sleep", v.Names[0]).Start(); err != nil {
			break
		}
		started++
	}
	fmt.Println("SAYS started", started)
	if started >= v.N {
		say("BROKE", "start processes without end", started)
	}
	time.Sleep(1500 * time.Millisecond) // at the limit, while others want to start some
	os.Exit(1)
}

func eat() {
	var held [][]byte
	for i := range v.N {
		held = append(held, bytes.Repeat([]byte{1}, 1<<20))
		if i%16 == 15 {
			fmt.Println("SAYS ate", i+1)
		}
	}
	time.Sleep(300 * time.Millisecond)
	say("BROKE", "allocate", len(held))
	runtime.KeepAlive(held)
}

func eatSplit() {
	var all []*exec.Cmd
	for range 8 {
		cmd := exec.Command(self(), "a17", `{"N":`+strconv.Itoa(v.N)+`}`)
		cmd.Stdout = os.Stdout
		if err := cmd.Start(); err != nil {
			say("SAYS", "start", err)
			continue
		}
		all = append(all, cmd)
	}
	for _, cmd := range all {
		_ = cmd.Wait()
	}
	time.Sleep(500 * time.Millisecond) // a watcher counts ten times a second
}

func burn() {
	for range 2 {
		go func() {
			for i := 0; ; i++ {
				if i < 0 {
					return
				}
			}
		}()
	}
	time.Sleep(time.Minute)
}

func endless() {
	line := bytes.Repeat([]byte("all work and no play\n"), 1000)
	for {
		if _, err := os.Stdout.Write(line); err != nil {
			return
		}
	}
}

func endlessErr() {
	os.Stdout = os.Stderr
	endless()
}

func noNewline() {
	b := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		_, _ = os.Stdout.Write(b)
	}
	time.Sleep(time.Minute)
}

func hugeFile() {
	f, err := os.Create("huge")
	check(err)
	b := make([]byte, 1<<20)
	signal.Ignore(syscall.SIGXFSZ)
	for i := range 1 << 20 {
		if _, err := f.Write(b); err != nil {
			say("HELD", "one huge file", cause(err))
			signal.Reset(syscall.SIGXFSZ)
			_, _ = f.Write(b) // and now the signal
			os.Exit(9)
		}
		if i == 4096 {
			say("BROKE", "one huge file", "4 GiB")
			return
		}
	}
}

func sparse() {
	f, err := os.Create("sparse")
	check(err)
	signal.Ignore(syscall.SIGXFSZ)
	try("make a sparse file of a TiB", f.Truncate(1<<40))
	_, err = f.WriteAt([]byte("x"), 1<<39)
	try("write far behind the end", err)
	try("reserve a TiB", unix.Fallocate(int(f.Fd()), 0, 0, 1<<40))
	os.Exit(9)
}

func tinyFiles() {
	check(os.MkdirAll("tiny", 0o700))
	for i := range v.N {
		if err := os.WriteFile(filepath.Join("tiny", strconv.Itoa(i)), []byte("x"), 0o600); err != nil {
			say("HELD", "tiny files", fmt.Sprint(i, " ", cause(err)))
			os.Exit(9)
		}
	}
	time.Sleep(5 * time.Second) // a watcher counts once a second
	say("BROKE", "tiny files", v.N)
}

func fillTemp() {
	dir := os.Getenv("TMPDIR")
	b := make([]byte, 1<<20)
	for n := range 400 {
		f, err := os.OpenFile(filepath.Join(dir, "fill"+strconv.Itoa(n/32)), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err == nil {
			_, err = f.Write(b)
		}
		if err != nil {
			say("HELD", "fill the temporary folder", fmt.Sprint(n, " MiB ", cause(err)))
			os.Exit(9)
		}
		f.Close()
	}
	time.Sleep(5 * time.Second)
	say("BROKE", "fill the temporary folder", "400 MiB")
}

func ignoreTerm() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGQUIT, syscall.SIGPIPE)
	fmt.Println("SAYS begun")
	time.Sleep(10 * time.Minute)
}

// daemon is an unwanted process: v.Names[0] marks its command line.
func daemon() {
	signal.Ignore(syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT)
	time.Sleep(10 * time.Minute)
}

func daemons() {
	for i := range 8 {
		cmd := exec.Command(self(), "daemon", v.Names[0])
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		if i%2 == 0 { // holds our output open
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		}
		if err := cmd.Start(); err != nil {
			say("SAYS", "start", err)
			return
		}
	}
	// And one whose parent is gone already.
	cmd := exec.Command(self(), "a22fork", os.Args[2])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Run()
	fmt.Println("SAYS started 9")
}

func fork() {
	cmd := exec.Command(self(), "daemon", v.Names[0])
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	_ = cmd.Start()
}

func daemonsHang() {
	daemons()
	time.Sleep(10 * time.Minute)
}

func daemonsExit() { daemons() }
