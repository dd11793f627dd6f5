//go:build linux

package jail

import (
	"io/fs"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/internal/platform/hostfs"
)

// Intervals of checking the limits that the kernel does not enforce for a whole tree.
const (
	watchTreeInterval = 100 * time.Millisecond
	watchDiskInterval = time.Second
)

// tickInterval is the unit of CPU time in /proc: 1/USER_HZ, which is 100 on supported systems.
const tickInterval = time.Second / 100

// process is one member of the tree.
type process struct {
	pid, parent int
	cpu         time.Duration // of the process and its reaped children
	resident    int64         // bytes
	started     int64         // ticks since the start of the machine
}

// watch checks the tree's memory, CPU time and disk usage at intervals, and kills the tree
// when it exceeds a limit. It ends with the process, or at once without limits on memory and
// CPU time; the disk has goroutines of its own.
func (h *helper) watch() {
	l := h.job.Limits
	if l.Disk > 0 {
		dir := "."
		if h.job.Isolate {
			dir = h.job.WorkDir
		}
		go h.watchDisk(dir, l.Disk)
	}
	if l.Temp > 0 && h.job.TempDir != "" {
		go h.watchDisk(h.job.TempDir, l.Temp)
	}
	if l.Memory <= 0 && l.CPU <= 0 {
		return
	}
	for range time.Tick(watchTreeInterval) {
		var resident int64
		cpu := usage()
		total := cpu.User + cpu.System
		for _, p := range h.tree() {
			resident += p.resident
			total += p.cpu
		}
		switch {
		case l.Memory > 0 && resident > l.Memory:
			h.exceed("memory")
		case l.CPU > 0 && total > l.CPU:
			h.exceed("cpu")
		}
	}
}

// watchDisk calls exceed while the files of a directory occupy more than limit bytes. It
// walks through an os.Root, because the program may place links that lead outside.
func (h *helper) watchDisk(dir string, limit int64) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return
	}
	for range time.Tick(watchDiskInterval) {
		if diskUsage(root, limit) > limit {
			h.exceed("disk")
		}
	}
}

// minEntry is the size in bytes that an empty file is counted with, because names and
// inodes are limited as well.
const minEntry = 1 << 10

// diskUsage returns the allocated bytes below root, and stops counting above enough. Folders
// nested deeper than [hostfs.MaxDepth] return more than enough. A file with several names counts
// several times.
func diskUsage(root *os.Root, enough int64) int64 {
	var used int64
	_ = fs.WalkDir(root.FS(), ".", func(name string, d fs.DirEntry, err error) error {
		if strings.Count(name, "/") >= hostfs.MaxDepth {
			used = enough + 1
			return fs.SkipAll
		}
		if err != nil {
			return nil // it was removed or is not readable: count the rest
		}
		info, err := d.Info()
		if err != nil {
			return nil
		}
		if st, ok := info.Sys().(*syscall.Stat_t); ok {
			used += max(st.Blocks<<9, minEntry) // units of 512 bytes on every file system
		}
		if used > enough {
			return fs.SkipAll
		}
		return nil
	})
	return used
}

// tree returns the processes of the run without the helper: at T3 all of the namespace, at T2
// the helper's descendants.
func (h *helper) tree() []process {
	dir, err := os.Open("/proc")
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, err := dir.Readdirnames(-1)
	if err != nil {
		return nil
	}
	self := os.Getpid()
	var all []process
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == self {
			continue
		}
		if p, ok := readProcess(pid); ok {
			all = append(all, p)
		}
	}
	if h.job.Isolate {
		return all
	}
	return descendants(all, self)
}

// descendants returns the processes of all that descend from root.
func descendants(all []process, root int) []process {
	children := make(map[int][]process, len(all))
	for _, p := range all {
		children[p.parent] = append(children[p.parent], p)
	}
	var tree []process
	todo := []int{root}
	for len(todo) > 0 {
		next := children[todo[0]]
		delete(children, todo[0])
		todo = todo[1:]
		for _, p := range next {
			tree = append(tree, p)
			todo = append(todo, p.pid)
		}
	}
	return tree
}

// readProcess reads /proc/PID/stat: after the name in parentheses, which may
// hold anything, fields 3 (state), 4 (parent), 14-17 (times), 24 (pages).
func readProcess(pid int) (process, bool) {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return process{}, false
	}
	text := string(data)
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 22 {
		return process{}, false
	}
	number := func(field int) int64 { // as proc(5) counts them
		n, _ := strconv.ParseInt(f[field-3], 10, 64)
		return n
	}
	p := process{
		pid: pid, parent: int(number(4)),
		cpu:      time.Duration(number(14)+number(15)+number(16)+number(17)) * tickInterval,
		resident: number(24) * int64(os.Getpagesize()), started: number(22),
	}
	return p, true
}
