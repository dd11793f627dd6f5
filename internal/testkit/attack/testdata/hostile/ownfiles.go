//go:build linux

package main

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// swap exchanges folders of ours with links to the outside, for as long as it runs.
func swap() {
	for _, name := range []string{"config.json", "data", "sub"} {
		_ = os.RemoveAll(name)
		check(os.MkdirAll(name+"/deep", 0o700))
		check(os.WriteFile(name+"/deep/file", []byte("x"), 0o600))
		check(os.Symlink(v.Dir, name+"-link"))
	}
	fmt.Println("SAYS begun")
	for end := time.Now().Add(6 * time.Second); time.Now().Before(end); {
		for _, name := range []string{"config.json", "data", "sub"} {
			_ = unix.Renameat2(unix.AT_FDCWD, name, unix.AT_FDCWD, name+"-link", unix.RENAME_EXCHANGE)
		}
	}
}

// fifos puts files that block their reader where the server's files would be.
func fifos() {
	for _, name := range []string{"config.json", "mark", "artifacts", "usage.md", "pipe"} {
		_ = os.RemoveAll(name)
		check(unix.Mkfifo(name, 0o666))
	}
	check(os.MkdirAll("tree", 0o700))
	check(unix.Mkfifo("tree/pipe", 0o600))
	_, err := net.Listen("unix", "tree/socket")
	claims("make a socket", err)
}

func fifoRace() {
	fmt.Println("SAYS begun")
	for end := time.Now().Add(5 * time.Second); time.Now().Before(end); {
		_ = unix.Mkfifo("config.json", 0o666)
	}
}

// inodes makes files that hold nothing.
func inodes() {
	check(os.MkdirAll("empty", 0o700))
	for i := range v.N {
		if err := unix.Symlink("x", "empty/"+strconv.Itoa(i)); err != nil {
			say("HELD", "empty files", cause(err))
			os.Exit(9)
		}
	}
	time.Sleep(5 * time.Second)
	say("BROKE", "make files that hold nothing", v.N)
}

// deep makes a tree that is deeper than any path is long, with locks and names
// that no reader expects.
func deep() {
	root, err := os.Getwd()
	check(err)
	for range v.N {
		check(unix.Mkdir("0", 0o700))
		check(unix.Chdir("0"))
	}
	check(os.WriteFile("bottom", nil, 0o600))
	if unix.Chdir(root) != nil {
		for range v.N {
			check(unix.Chdir(".."))
		}
	}
	for _, name := range []string{"-rf", "new\nline", "\xff\xfe", strings.Repeat("x", 255), "esc\x1b[2J", "'; rm -rf ~", "\u202egnp"} {
		check(os.WriteFile(name, nil, 0o000))
	}
	check(os.MkdirAll("locked/in/here", 0o700))
	check(os.WriteFile("locked/in/here/file", []byte("x"), 0o400))
	for _, name := range []string{"locked/in/here", "locked/in", "locked"} {
		_ = os.Chmod(name, 0) // refused at T2 where the server's user is ours
	}
	fmt.Println("SAYS made")
}

// closeWork locks the working folder itself.
func closeWork() {
	claims("lock the working folder", unix.Fchmodat(unix.AT_FDCWD, ".", 0, 0))
}

// artifacts leaves what the server looks at when the run has ended.
func artifacts() {
	_ = os.RemoveAll("artifacts")
	check(os.MkdirAll("artifacts/sub", 0o700))
	check(os.Chdir("artifacts"))
	check(os.Symlink(v.File, "link"))
	check(os.Symlink(v.Dir, "folder"))
	check(os.Symlink("/dev/zero", "endless"))
	check(os.Symlink("/proc/self/environ", "environment"))
	check(unix.Mkfifo("pipe", 0o666))
	check(os.WriteFile("good.txt", []byte("made"), 0o600))
	check(os.WriteFile("once", []byte("x"), 0o600))
	check(os.Link("once", "twice"))
	check(os.WriteFile("locked", []byte("x"), 0))
	f, err := os.Create("sparse")
	check(err)
	check(f.Truncate(40 << 20))
	for i := range 90 {
		check(os.WriteFile(fmt.Sprint("sub/n", i), []byte("x"), 0o600))
	}
	for _, name := range []string{"new\nline", "\x1b[2J", "\xff", "..a", "\u202egnp"} {
		check(os.WriteFile(name, []byte("x"), 0o600))
	}
	_, _ = net.Listen("unix", "socket")
	fmt.Println("SAYS made")
}

// badFiles puts malformed databases and texts where valid ones are expected:
// Names[0] says which.
func badFiles() {
	for _, name := range []string{"data.db", "data.db-wal", "data.db-journal", "data.db-shm", "text", "pipe"} {
		_ = os.Remove(name)
	}
	switch v.Names[0] {
	case "link":
		check(os.Symlink(v.File, "data.db"))
	case "new":
		check(os.Symlink(v.Dir+"/made", "data.db"))
	case "pipe":
		check(unix.Mkfifo("data.db", 0o666))
	case "broken":
		check(os.WriteFile("data.db", append([]byte("SQLite format 3\x00"), bytes.Repeat([]byte{0xff}, 8192)...), 0o600))
		check(os.Symlink(v.File, "data.db-wal"))
		check(os.Symlink(v.File, "data.db-journal"))
	case "empty":
		check(os.WriteFile("data.db", nil, 0o600))
		check(os.Symlink(v.Dir+"/made", "data.db-journal"))
		check(os.Symlink(v.Dir+"/made", "data.db-wal"))
	case "endless":
		check(os.Symlink("/dev/zero", "data.db"))
	}
	check(os.Symlink(v.File, "text"))
	check(unix.Mkfifo("pipe", 0o666))
	fmt.Println("SAYS made")
}

func ownFile() {
	for _, path := range []string{os.Args[0], "/proc/self/exe"} {
		try("write our own program "+filepath.Base(path), writes(path, os.O_WRONLY))
		try("truncate it "+filepath.Base(path), os.Truncate(path, 0))
	}
	dir := filepath.Dir(os.Args[0])
	try("replace it", os.Rename("/proc/self/cwd/x", os.Args[0]))
	try("make one beside it", writes(filepath.Join(dir, "curl"), os.O_CREATE|os.O_WRONLY))
	try("remove it", os.Remove(os.Args[0]))
	try("write the manifest", writes(filepath.Join(dir, "..", "manifest.json"), os.O_WRONLY))
	try("chmod it", unix.Chmod(os.Args[0], 0o777))
}
