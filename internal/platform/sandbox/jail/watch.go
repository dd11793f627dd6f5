//go:build linux

package jail

import (
	"errors"
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

// maxHiddenChecks is how often in a row a process may prevent that its open files are seen; it does so for
// a moment when a program is started.
const maxHiddenChecks = 3

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
	perSocket := socketBytes()
	var queued int64 // bytes that the queues of sockets may have, which are pages of no process
	checks := 0
	for range time.Tick(watchTreeInterval) {
		if checks++; l.Memory > 0 && checks%int(watchDiskInterval/watchTreeInterval) == 1 {
			queued = h.held().sockets * perSocket
		}
		resident := queued
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
	hidden := 0
	for range time.Tick(watchDiskInterval) {
		open := h.held()
		if hidden++; !open.hidden {
			hidden = 0
		}
		if hidden > maxHiddenChecks || open.files+diskUsage(root, limit) > limit {
			h.exceed("disk")
		}
	}
}

// minEntry is the size in bytes that an empty file is counted with, because names and
// inodes are limited as well.
const minEntry = 1 << 10

// diskUsage returns the allocated bytes below root, and stops counting above enough. Folders
// nested deeper than [hostfs.MaxDepth], and those that cannot be made readable, return more than
// enough. A file with several names counts several times.
func diskUsage(root *os.Root, enough int64) int64 { return diskUsageBelow(root, ".", enough) }

func diskUsageBelow(root *os.Root, start string, enough int64) int64 {
	var used int64
	_ = fs.WalkDir(root.FS(), start, func(name string, d fs.DirEntry, err error) error {
		if strings.Count(name, "/") >= hostfs.MaxDepth {
			used = enough + 1
			return fs.SkipAll
		}
		if errors.Is(err, fs.ErrPermission) && d != nil && d.IsDir() && name != start {
			if used += readable(root, name, enough-used); used > enough {
				return fs.SkipAll
			}
			return nil
		}
		if errors.Is(err, fs.ErrPermission) {
			used = enough + 1
			return fs.SkipAll
		}
		if err != nil {
			return nil // it was removed: count the rest
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

// readable counts a folder that its owner must not list. The mode is changed for as long as that takes.
func readable(root *os.Root, name string, enough int64) int64 {
	info, err := root.Lstat(name)
	if errors.Is(err, fs.ErrNotExist) {
		return 0
	}
	if err != nil || root.Chmod(name, info.Mode().Perm()|0o500) != nil {
		return enough + 1
	}
	defer func() { _ = root.Chmod(name, info.Mode().Perm()) }() // it may have been removed
	return diskUsageBelow(root, name, enough)
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
