package process

import (
	"bytes"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/internal/platform/procgroup"

	"golang.org/x/sys/unix"
)

// prepare configures the program to lead its own session, controlled by its terminal if it has one,
// to die with its parent, and to inherit only its standard files.
func prepare(cmd *exec.Cmd, terminal bool) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: terminal, Pdeathsig: syscall.SIGKILL}
	procgroup.SealDescriptors()
}

// A tree that keeps creating processes while it is ended is given up after maxLooks attempts, which
// take one second in all.
const (
	maxLooks     = 50
	pollInterval = 20 * time.Millisecond
)

// sweep ends all processes that belong to the leader (0: the leader has ended) or have the
// mark, and returns their number.
func sweep(leader int, mark string) int {
	ended := map[member]bool{}
	for range maxLooks {
		list := members(leader, mark)
		if len(list) == 0 {
			break
		}
		for _, m := range list {
			ended[m] = true
			m.kill()
		}
		time.Sleep(pollInterval) // a killed process exists until it has died
	}
	return len(ended)
}

// member is a process that belongs to a tree. Its start time distinguishes it from a later
// process with the same id.
type member struct {
	pid   int
	start string
}

// members returns the members of a tree except its leader: descendants, its group, its
// session, and processes that have the mark.
func members(leader int, mark string) []member {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil
	}
	type process struct {
		member
		parent  int
		belongs bool
	}
	var all []process
	below := map[int]bool{leader: leader != 0}
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() || pid == leader {
			continue
		}
		parent, group, session, start, dead, ok := statOf(pid)
		if !ok || dead {
			continue
		}
		belongs := leader != 0 && (group == leader || session == leader)
		if !belongs && mark != "" {
			env, _ := os.ReadFile("/proc/" + e.Name() + "/environ") // cannot be read for processes of other users
			belongs = bytes.Contains(append([]byte{0}, env...), []byte("\x00"+mark+"\x00"))
		}
		all = append(all, process{member{pid, start}, parent, belongs})
	}
	for grown := true; grown; {
		grown = false
		for i := range all {
			p := &all[i]
			if below[p.pid] || !p.belongs && !below[p.parent] {
				continue
			}
			p.belongs, below[p.pid], grown = true, true, true
		}
	}
	var list []member
	for _, p := range all {
		if p.belongs {
			list = append(list, p.member)
		}
	}
	return list
}

// statOf parses /proc/<pid>/stat, see proc(5). ok is false if it cannot be read.
func statOf(pid int) (parent, group, session int, start string, dead, ok bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return
	}
	_, rest, found := strings.Cut(string(data[bytes.LastIndexByte(data, ')')+1:]), " ") // the name may contain any character
	fields := strings.Fields(rest)
	if !found || len(fields) < 20 {
		return
	}
	parent, _ = strconv.Atoi(fields[1])
	group, _ = strconv.Atoi(fields[2])
	session, _ = strconv.Atoi(fields[3])
	return parent, group, session, fields[19], fields[0] == "Z" || fields[0] == "X", true
}

// kill kills the process unless its id belongs to another one now.
func (m member) kill() {
	fd, err := unix.PidfdOpen(m.pid, 0)
	if err != nil {
		return // gone
	}
	defer unix.Close(fd)
	if _, _, _, start, _, ok := statOf(m.pid); ok && start == m.start {
		_ = unix.PidfdSendSignal(fd, unix.SIGKILL, nil, 0) // its only error is "gone"
	}
}
