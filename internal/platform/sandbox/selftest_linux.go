package sandbox

import (
	"bufio"
	"bytes"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/canary"
)

// Report returns the result of the self-test: the cached one of this boot, or a
// new one, which takes a few seconds.
func (b *Box) Report(ctx context.Context) (Report, error) {
	if r, ok := b.readReport(bootID(), b.identity()); ok {
		return r, nil
	}
	return b.SelfTest(ctx)
}

// bootID returns the kernel's id of this boot, or "" if it cannot be read.
func bootID() string {
	data, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	return strings.TrimSpace(string(data))
}

// identity identifies this binary and its disabled layers, because another binary may have
// other layers. It includes the user, because another one may have other permissions.
func (b *Box) identity() string {
	info, err := os.Stat("/proc/self/exe")
	if err != nil {
		return ""
	}
	id := fmt.Sprintf("%d-%d-%d", info.Size(), info.ModTime().UnixNano(), os.Geteuid())
	for _, layer := range slices.Sorted(maps.Keys(b.cfg.Off)) {
		id += " without " + layer
	}
	return id
}

// SelfTest tries to break out of every tier of this machine, and stores the result until the
// next boot. The error is ctx's; all other problems are findings.
func (b *Box) SelfTest(ctx context.Context) (Report, error) {
	b.mu.Lock()
	b.facts = nil // the facts may have changed since the start
	b.mu.Unlock()
	r := Report{Facts: b.Facts(), At: time.Now().UTC(), Boot: bootID(), Binary: b.identity()}
	for _, tier := range []Tier{T3, T2} {
		r.Tiers = append(r.Tiers, b.testTier(ctx, tier, r.Facts))
		if err := ctx.Err(); err != nil {
			return r, err
		}
	}
	b.writeReport(r)
	return r, nil
}

// testTier runs the acts at one tier. If the tier is unavailable or the canary could not run,
// it sets Skipped to the reason.
func (b *Box) testTier(ctx context.Context, tier Tier, f Facts) TierTest {
	t := TierTest{Tier: tier}
	if tier == T3 {
		t.Skipped = f.NoT3
	} else {
		t.Skipped = f.NoT2
	}
	if t.Skipped != "" {
		return t
	}
	results, err := b.breakOut(ctx, tier)
	if err != nil {
		t.Skipped = err.Error()
		return t
	}
	for _, r := range results {
		if tier == T2 {
			r.Layer = layerAtT2(r.Layer)
		}
		if r.Outcome == canary.Broken && residual(tier, r.Act) {
			t.Residual = append(t.Residual, r)
			continue
		}
		t.Results = append(t.Results, r)
	}
	return t
}

// layerAtT2 returns the layer that replaces a layer of namespaces at T2.
func layerAtT2(layer string) string {
	switch layer {
	case LayerRoot, LayerProc, LayerNamespaces:
		return LayerLandlock
	case LayerNetwork:
		return LayerSeccomp
	}
	return layer
}

// breakOut creates victims, runs the canary against them, and inspects them afterwards,
// because the canary's own report may be incomplete.
func (b *Box) breakOut(ctx context.Context, tier Tier) ([]canary.Result, error) {
	base, err := os.MkdirTemp(b.cfg.Scratch, "junctor-canary-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(base)
	if base, err = filepath.EvalSymlinks(base); err != nil {
		return nil, err
	}
	// The canary signals every process that it may, so each server's has a user of its own.
	user := DefaultUID - 100 - os.Getpid()%1000
	v, victim, release, err := makeVictims(ctx, base, user)
	if err != nil {
		return nil, err
	}
	defer release()
	c := Confinement{
		Work: filepath.Join(base, "work"), Package: filepath.Join(base, "package"), MinTier: tier, MaxTier: tier, UID: user, GID: user,
	}
	p, err := b.Place(c)
	if err != nil {
		return nil, err
	}
	v.Spare, v.Package = p.Work, p.Package
	if tier == T3 && v.PID < 256 {
		v.PID = 0 // the number would mean a process inside
	}
	spec, err := canarySpec("all")
	if err != nil {
		return nil, err
	}
	if spec.Stdin, err = json.Marshal(v); err != nil {
		return nil, err
	}
	r, err := b.Run(ctx, spec, c)
	if err != nil {
		return nil, err
	}
	var results []canary.Result
	if err := json.Unmarshal(r.Stdout.Bytes(), &results); err != nil {
		return nil, fmt.Errorf("the canary ended with %d %s and said: %.300s", r.ExitCode, r.Signal, r.Stderr.Text())
	}
	after := canary.Result{Act: "leave a trace outside", Layer: LayerRoot, Outcome: canary.Held}
	if trace := traces(v, victim); trace != "" {
		after.Outcome, after.Detail = canary.Broken, trace
	}
	return append(results, after, b.fillDisk(ctx, c)), nil
}

// fillDisk runs a program that takes up more disk space than it may, with files that have no name.
func (b *Box) fillDisk(ctx context.Context, c Confinement) canary.Result {
	out := canary.Result{Act: "fill the disk with removed files", Layer: LayerHygiene, Outcome: canary.Broken}
	if b.cfg.Off[LayerProc] != "" {
		out.Outcome, out.Detail = canary.Unavailable, "open files are not seen without /proc"
		return out
	}
	c.Limits.Disk = 8 << 20
	spec, err := canarySpec("removed")
	var r Result
	if err == nil {
		r, err = b.Run(ctx, spec, c)
	}
	switch e, ok := errors.AsType[*capability.Error](err); {
	case ok && e.Reason == reasonLimit && e.Details["kind"] == "disk":
		out.Outcome, out.Detail = canary.Held, e.Message
	case err != nil:
		out.Outcome, out.Detail = canary.Unavailable, err.Error()
	case r.ExitCode != 0:
		out.Outcome, out.Detail = canary.Unavailable, r.Stderr.Text()
	}
	return out
}

// makeVictims creates the objects that must not be reachable. Permissions do not protect
// them, only the layers do. If the server is root, user is that of the process among them.
func makeVictims(ctx context.Context, base string, user int) (v canary.Victims, process *victimProcess, release func(), err error) {
	var closers []io.Closer
	release = func() {
		for _, c := range closers {
			_ = c.Close()
		}
	}
	defer func() {
		if err != nil {
			release()
		}
	}()
	v.Dir, v.UID = filepath.Join(base, "outside"), os.Geteuid()
	v.File = filepath.Join(v.Dir, "file")
	for _, dir := range []string{base, v.Dir, filepath.Join(base, "work"), filepath.Join(base, "package")} {
		if err = os.MkdirAll(dir, 0o755); err != nil {
			return v, nil, release, err
		}
		if err = os.Chmod(dir, 0o755); err != nil {
			return v, nil, release, err
		}
	}
	if err = os.Chmod(v.Dir, 0o777); err != nil {
		return v, nil, release, err
	}
	if err = os.WriteFile(v.File, []byte(canary.Secret), 0o600); err != nil {
		return v, nil, release, err
	}
	if err = os.Chmod(v.File, 0o666); err != nil {
		return v, nil, release, err
	}
	if err = os.WriteFile(filepath.Join(base, "package", canary.Shown), []byte("shown"), 0o644); err != nil {
		return v, nil, release, err
	}
	listen := func(network, address string) string {
		l, lerr := net.Listen(network, address)
		if lerr != nil {
			return ""
		}
		closers = append(closers, l)
		return l.Addr().String()
	}
	v.TCP = listen("tcp4", "127.0.0.1:0")
	v.Socket = listen("unix", filepath.Join(v.Dir, "socket"))
	if v.Socket != "" {
		_ = os.Chmod(v.Socket, 0o777)
	}
	v.Abstract = strings.TrimPrefix(listen("unix", "@junctor-canary-"+rand.Text()), "@")
	if echo, uerr := net.ListenPacket("udp4", "127.0.0.1:0"); uerr == nil {
		closers = append(closers, echo)
		v.UDP = echo.LocalAddr().String()
		go func() { // ends when the socket is closed
			buf := make([]byte, 512)
			for {
				n, from, err := echo.ReadFrom(buf)
				if err != nil {
					return
				}
				_, _ = echo.WriteTo(buf[:n], from)
			}
		}()
	}
	for _, kv := range os.Environ() {
		if name, _, _ := strings.Cut(kv, "="); name != "PATH" && name != "GORACE" && name != "TMPDIR" && name != "" {
			v.Env = name
			break
		}
	}
	victim, err := startVictim(ctx, user)
	if err != nil {
		return v, nil, release, err
	}
	closers = append(closers, victim)
	v.PID, v.IPC = victim.pid, victim.ipc
	return v, victim, release, nil
}

// victimProcess is a running process for the acts on foreign processes. It ends with its input, also when
// the server is killed, and removes its System V objects then.
type victimProcess struct {
	said *bytes.Buffer
	pid  int
	nice int         // the inherited value as the kernel counts, which need not be the default
	ipc  *canary.IPC // nil if the kernel has none
	end  func() error
}

// signalled reports whether a signal reached the process, after it has ended.
func (v *victimProcess) signalled() bool { return strings.Contains(v.said.String(), "touched") }

func startVictim(ctx context.Context, user int) (*victimProcess, error) {
	cmd := exec.CommandContext(ctx, "/proc/self/exe", canaryName, "wait")
	cmd.Env = []string{"JUNCTOR_CANARY=" + canary.Secret, "GORACE=atexit_sleep_ms=0"}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if os.Geteuid() == 0 { // else its permissions would protect it
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(user), Gid: uint32(user)}
	}
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Cancel, cmd.WaitDelay = in.Close, victimGrace // killed, it would leave its objects
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	v := &victimProcess{said: &bytes.Buffer{}, pid: cmd.Process.Pid}
	v.end = sync.OnceValue(func() error {
		_ = in.Close()
		_, _ = io.Copy(v.said, out)
		return cmd.Wait()
	})
	line, err := bufio.NewReaderSize(out, 256).ReadSlice('\n')
	if err == nil {
		err = json.Unmarshal(line, &v.ipc)
	}
	if err == nil {
		v.nice, err = syscall.Getpriority(syscall.PRIO_PROCESS, v.pid)
	}
	if err != nil {
		_ = v.Close()
		return nil, fmt.Errorf("start a victim: %w", err)
	}
	return v, nil
}

func (v *victimProcess) Close() error { return v.end() }

// traces describes the changes of the victims, or returns "".
func traces(v canary.Victims, victim *victimProcess) string {
	data, err := os.ReadFile(v.File)
	if err != nil || !bytes.Equal(data, []byte(canary.Secret)) {
		return "the outside file was changed"
	}
	if info, err := os.Stat(v.File); err != nil || info.Mode().Perm() != 0o666 || info.Sys().(*syscall.Stat_t).Nlink != 1 ||
		int(info.Sys().(*syscall.Stat_t).Uid) != os.Geteuid() {
		return "the outside file's attributes were changed"
	}
	entries, err := os.ReadDir(v.Dir)
	if err != nil || len(entries) > 2 {
		return "something was made outside"
	}
	if prio, err := syscall.Getpriority(syscall.PRIO_PROCESS, victim.pid); err != nil || prio != victim.nice {
		return "the priority of a foreign process was changed"
	}
	if _ = victim.Close(); victim.signalled() {
		return "a foreign process heard a signal"
	}
	return ""
}
