package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/junctor-run/junctor/internal/base/ids"
)

// cgroups holds the parent directories of new control groups: the server's own group, so that
// the server's limits apply to every run as well.
type cgroups struct {
	version string            // "v1", "v2"; "" for none
	dirs    map[string]string // controller → directory of the server's own group
}

func (c cgroups) names() []string {
	var list []string
	for name := range c.dirs {
		list = append(list, name)
	}
	slices.Sort(list)
	return list
}

// findCgroup finds writable memory and pids controllers, of either cgroup version. The
// error names the missing controller.
func findCgroup() (cgroups, error) {
	mounts, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return cgroups{}, err
	}
	own, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return cgroups{}, errors.New("the kernel has no control groups")
	}
	group := func(controller string) string { // the server's path in its hierarchy
		for line := range strings.Lines(string(own)) {
			f := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(f) == 3 && slices.Contains(strings.Split(f[1], ","), controller) {
				return f[2]
			}
		}
		return ""
	}
	c := cgroups{dirs: map[string]string{}}
	var unified string
	for line := range strings.Lines(string(mounts)) {
		before, after, _ := strings.Cut(strings.TrimSpace(line), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if len(left) < 5 || len(right) < 3 {
			continue
		}
		// In a hierarchy mounted from below its root, the server's group is relative to that.
		dir := func(path string) string {
			return filepath.Join(left[4], strings.TrimPrefix(path, strings.TrimSuffix(left[3], "/")))
		}
		switch right[0] {
		case "cgroup2":
			unified = dir(group(""))
		case "cgroup":
			for _, name := range []string{"memory", "pids", "cpu"} {
				if path := group(name); path != "" && slices.Contains(strings.Split(right[2], ","), name) && writable(dir(path)) {
					c.dirs[name] = dir(path)
				}
			}
		}
	}
	if c.dirs["memory"] != "" && c.dirs["pids"] != "" {
		c.version = "v1"
		return c, nil
	}
	if unified != "" && writable(unified) {
		on, _ := os.ReadFile(filepath.Join(unified, "cgroup.subtree_control"))
		have := strings.Fields(string(on))
		if slices.Contains(have, "memory") && slices.Contains(have, "pids") {
			c = cgroups{version: "v2", dirs: map[string]string{}}
			for _, name := range have {
				c.dirs[name] = unified
			}
			return c, nil
		}
		return cgroups{}, errors.New("the memory and pids controllers are not delegated to our control group (cgroup.subtree_control)")
	}
	return cgroups{}, errors.New("no control group that we may write to")
}

func writable(dir string) bool { return unix.Access(dir, unix.W_OK|unix.X_OK) == nil }

// group is the control group of one helper and the program it runs.
type group struct {
	version string
	dirs    map[string]string // controller → directory; one for all in v2
}

// groupPrefix is the prefix of the name of every group of the server, before the server's
// ownerTag.
const groupPrefix = "junctor-"

// removeStale removes the groups of servers that were killed. The kernel
// refuses to remove a group that contains a process.
func (c cgroups) removeStale() {
	for _, dir := range c.dirs {
		left, _ := filepath.Glob(filepath.Join(dir, groupPrefix+"*-*"))
		for _, group := range left {
			owner, _, _ := strings.Cut(strings.TrimPrefix(filepath.Base(group), groupPrefix), "-")
			if ownerGone(owner) {
				_ = unix.Rmdir(group)
			}
		}
	}
}

// ownerTag identifies this process in the names of what it leaves if it is killed: its number, and
// when it started, because numbers are used again.
func ownerTag() string {
	return strconv.Itoa(os.Getpid()) + "." + strconv.FormatInt(startOf(os.Getpid()), 10)
}

// ownerGone reports whether the process of an ownerTag has ended. A tag without a start, of an
// earlier version, counts as gone only if no process has its number.
func ownerGone(tag string) bool {
	number, start, timed := strings.Cut(tag, ".")
	pid, err := strconv.Atoi(number)
	if err != nil || pid <= 0 {
		return false
	}
	if errors.Is(unix.Kill(pid, 0), unix.ESRCH) {
		return true
	}
	now := startOf(pid)
	return timed && now != 0 && start != "0" && strconv.FormatInt(now, 10) != start
}

// startOf returns when a process started, in ticks since the start of the machine; 0 if that is
// not known.
func startOf(pid int) int64 {
	data, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0
	}
	text := string(data)
	fields := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(fields) < 20 {
		return 0
	}
	n, _ := strconv.ParseInt(fields[19], 10, 64) // field 22 of proc(5); the first here is 3
	return n
}

// newGroup makes a group without limits.
func (c cgroups) newGroup() (*group, error) {
	g := &group{version: c.version, dirs: map[string]string{}}
	name := groupPrefix + ownerTag() + "-" + ids.Text()[:12]
	for controller, parent := range c.dirs {
		dir := filepath.Join(parent, name)
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			g.remove()
			return nil, fmt.Errorf("make a control group: %w", err)
		}
		g.dirs[controller] = dir
	}
	return g, nil
}

// limit sets the limits. The memory and processes of the helper itself are added as spare.
func (g *group) limit(l Limits, spare int) error {
	for _, s := range g.settings(l, spare) {
		dir, ok := g.dirs[s.controller]
		if !ok {
			continue
		}
		err := os.WriteFile(filepath.Join(dir, s.file), []byte(s.value), 0o600)
		if err != nil && !s.optional {
			return fmt.Errorf("limit the control group: %s: %w", s.file, err)
		}
	}
	return nil
}

type setting struct {
	controller, file, value string
	optional                bool
}

func (g *group) settings(l Limits, spare int) []setting {
	var list []setting
	bytes := strconv.FormatInt(l.Memory+helperMemory, 10)
	v1 := g.version == "v1"
	if l.Memory > 0 && v1 {
		list = append(list, setting{"memory", "memory.limit_in_bytes", bytes, false},
			setting{"memory", "memory.memsw.limit_in_bytes", bytes, true})
	}
	if l.Memory > 0 && !v1 {
		list = append(list, setting{"memory", "memory.max", bytes, false}, setting{"memory", "memory.swap.max", "0", true},
			setting{"memory", "memory.oom.group", "1", true})
	}
	if l.Processes > 0 {
		list = append(list, setting{"pids", "pids.max", strconv.Itoa(l.Processes + spare), false})
	}
	if quota := strconv.Itoa(int(l.Cores * 100000)); l.Cores > 0 && v1 {
		list = append(list, setting{"cpu", "cpu.cfs_period_us", "100000", true}, setting{"cpu", "cpu.cfs_quota_us", quota, true})
	} else if l.Cores > 0 {
		list = append(list, setting{"cpu", "cpu.max", quota + " 100000", true})
	}
	return list
}

// helperMemory is the memory of the group that the helper itself may use.
const helperMemory = 32 << 20

// add moves a process into the group.
func (g *group) add(pid int) error {
	for _, dir := range g.dirs {
		if err := os.WriteFile(filepath.Join(dir, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			return fmt.Errorf("enter the control group: %w", err)
		}
	}
	return nil
}

// number reads a number of the group: the content of a file, or the value of the named line
// in it. It returns 0 if the file cannot be read.
func (g *group) number(controller, file, line string) int64 {
	data, err := os.ReadFile(filepath.Join(g.dirs[controller], file))
	if err != nil {
		return 0
	}
	text := strings.TrimSpace(string(data))
	if line != "" {
		for l := range strings.Lines(text) {
			if name, value, _ := strings.Cut(strings.TrimSpace(l), " "); name == line {
				text = value
			}
		}
	}
	n, _ := strconv.ParseInt(text, 10, 64)
	return n
}

// killedForMemory reports whether the kernel killed a process for lack of memory.
func (g *group) killedForMemory() bool {
	if g.version == "v1" {
		return g.number("memory", "memory.oom_control", "oom_kill") > 0
	}
	return g.number("memory", "memory.events", "oom_kill") > 0
}

// peak returns the maximum memory use of the group in bytes, and whether the process limit
// refused a new process.
func (g *group) peak() (memory int64, refused bool) {
	file := "memory.peak"
	if g.version == "v1" {
		file = "memory.max_usage_in_bytes"
	}
	return g.number("memory", file, ""), g.number("pids", "pids.events", "max") > 0
}

// kill kills all processes of the group at once, on kernels that have cgroup.kill.
func (g *group) kill() {
	for _, dir := range g.dirs {
		_ = os.WriteFile(filepath.Join(dir, "cgroup.kill"), []byte("1"), 0o600)
	}
}

// killTimeout bounds killAll: a process in an uninterruptible call cannot be killed.
const killTimeout = 5 * time.Second

// killAll kills the processes of the group repeatedly until it is empty or killTimeout ends, and
// reports whether it is empty.
func (g *group) killAll() bool {
	g.kill()
	if dir, ok := g.dirs["pids"]; ok { // nothing in it may start a process any more
		_ = os.WriteFile(filepath.Join(dir, "pids.max"), []byte("0"), 0o600)
	}
	for deadline := time.Now().Add(killTimeout); time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		left := false
		for _, dir := range g.dirs {
			data, _ := os.ReadFile(filepath.Join(dir, "cgroup.procs"))
			for _, text := range strings.Fields(string(data)) {
				if pid, err := strconv.Atoi(text); err == nil && pid > 0 {
					_ = unix.Kill(pid, unix.SIGKILL)
					left = true
				}
			}
		}
		if !left {
			return true
		}
	}
	return false
}

// remove removes the group. The kernel returns "busy" while the last process ends.
func (g *group) remove() {
	for _, dir := range g.dirs {
		for pause := 100 * time.Microsecond; pause < time.Second; pause *= 2 {
			if err := unix.Rmdir(dir); !errors.Is(err, unix.EBUSY) {
				break
			}
			time.Sleep(pause)
		}
	}
}
