package attack

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode"
)

// TestOwnAttacks are those beyond A1 to A25; the ones that succeeded
// when they were written say so. The first is not an attack: a confined program
// must still be able to work.
func TestOwnAttacks(t *testing.T) {
	writes := []string{"filesystem.write"}
	network, hosts := []string{"network"}, []string{"a.test"}
	tryAll(t, []attack{
		{name: "Room", permissions: writes, do: roomToWork},
		{name: "Memfd", do: func(l *lab) { l.stopped("memfd", 1) }},
		{name: "ForeignABI", permissions: writes, do: func(l *lab) { l.stopped("foreign", 2) }},
		// Succeeded: root without CAP_SYS_RESOURCE could not make limits final.
		{name: "RaisedLimits", limits: map[string]int{"cpu_seconds": 60}, do: func(l *lab) { l.stopped("raise", 5) }},
		{name: "TracedChild", do: func(l *lab) { l.stopped("traceme", 2) }},
		{name: "Calls", do: func(l *lab) { l.stopped("calls", 28) }},
		{name: "OwnProgram", permissions: writes, do: func(l *lab) { l.stopped("ownfile", 9) }},
		{name: "Threads", limits: map[string]int{"max_processes": 40}, do: func(l *lab) {
			l.v.N = 400
			if r := l.task("threads"); r.Err == nil || len(read(r.Output).broken) > 0 {
				l.Errorf("400 threads with a limit of 40: %v %.300s", r.Err, r.Output)
			}
		}},
		{name: "AfterTheEnd", permissions: network, network: hosts, do: proxyEndsWithTheRun},
		{
			name: "Rebinding", permissions: network, network: []string{"*.rebind.test", "inside.test", "metadata.test", "intranet.test"},
			do: rebinding,
		},
		{name: "Smuggling", permissions: network, network: hosts, do: smuggling},
		// Succeeded: every connection, silent or not, was a descriptor of the server.
		{name: "SilentConnections", permissions: network, network: hosts, timeout: 30, do: silentConnections},
		{name: "DeniedFlood", permissions: network, network: hosts, timeout: 60, do: deniedFlood},
		{name: "SwappedFolders", permissions: writes, do: swappedFolders},
		{name: "Fifos", permissions: writes, do: fifos},
		{name: "FifoRace", permissions: writes, do: fifoRace},
		{name: "Escapes", do: escapes},
		{name: "ToldSecrets", do: toldSecrets},
		{name: "StoppedInit", timeout: 2, do: func(l *lab) {
			r := l.task("init")
			if r.Err == nil || r.Took > 2*time.Minute || !strings.Contains(r.Output, "begun") {
				l.Errorf("%v %v after %s: %s", r.Err, detailsOf(r), r.Took, r.Output)
			}
		}},
		{name: "LeftIPC", do: leftIPC},
		// Succeeded: what occupies nothing was not counted.
		{name: "EmptyFiles", permissions: writes, limits: map[string]int{"disk_mb": 8}, timeout: 60, do: func(l *lab) {
			l.v.N = 30000
			l.limited(l.task("inodes"), "resource_limit", "disk")
		}},
		// Succeeded: removing it took all descriptors of the server.
		{name: "DeepFolders", permissions: writes, timeout: 60, do: deepFolders},
		{name: "LockedFolder", permissions: writes, do: lockedFolder},
		// Succeeded where memory is watched and not held.
		{name: "HiddenMemory", limits: map[string]int{"memory_mb": 96}, do: func(l *lab) {
			if r := l.task("hidden"); r.Err == nil || len(read(r.Output).broken) > 0 {
				l.Errorf("%v %s", r.Err, r.Output)
			}
		}},
		{name: "Sessions", do: sessionNames},
		{name: "Plans", permissions: writes, do: hostilePlan},
		{name: "ChangedTool", do: changedTool},
		{name: "Artifacts", permissions: writes, do: hostileArtifacts},
		{name: "BadFiles", permissions: append([]string{"db.read"}, writes...), do: badFiles},
	})
}

func roomToWork(l *lab) {
	if err := l.configure(map[string]any{"word": "x"}); err != nil {
		l.Error(err)
	}
	r := l.task("room")
	says := read(r.Output).says
	if l.tier == "T2" && l.user == "root" {
		// Only root can enter root's home, and without namespaces there is no
		// other name for what is in it: programs use relative ones.
		if len(says) < 2 || says[1] != "TMPDIR <nil>" || says[len(says)-1] != `config {"word":"x"} <nil>` {
			l.Errorf("%v %s", r.Err, r.Output)
		}
		l.Logf("RESIDUAL: at T2 as root a program cannot use absolute names of its working folder: %s", r.Output)
		return
	}
	if got := strings.Join(says, "\n"); r.Err != nil || got != "HOME <nil>\nTMPDIR <nil>\nPWD <nil>\nAGENTOS_WORK_DIR <nil>\nPATH <nil>\nrun \"fine\\n\" <nil>\nconfig {\"word\":\"x\"} <nil>" {
		l.Errorf("%v %s", r.Err, r.Output)
	}
}

func proxyEndsWithTheRun(l *lab) {
	h := l.needsInternet()
	if l.unfiltered("afterend") {
		return
	}
	path := "/late-" + l.user
	l.v.Names = []string{"http://a.test" + path}
	if r := l.task("afterend"); r.Err != nil || !strings.Contains(r.Output, "left") {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	time.Sleep(300 * time.Millisecond) // an absent user would have asked by then
	for _, hit := range h.all() {
		if strings.Contains(hit, path) {
			l.Errorf("somebody asked after the run had ended: %s", hit)
		}
	}
}

func swappedFolders(l *lab) {
	ended := make(chan run, 1)
	go func() { ended <- l.task("swap") }()
	work := filepath.Join(l.home, "extensions", l.p.id, "work")
	until(l.T, "it swaps", func() bool { _, err := os.Lstat(filepath.Join(work, "sub-link")); return err == nil })
	for range 20 {
		if err := l.configure(map[string]any{"word": "changed"}); err != nil && reasonOf(err) == "internal" {
			l.Error(err)
		}
		var found any
		if err := l.admin.Do(l.Context(), http.MethodGet, extensionsDoor+"/doctor", nil, &found); err != nil {
			l.Error(err)
		}
	}
	next := l.p
	next.version = "1.1.0"
	if err := l.install(l.Context(), l.who, next, l.T); err != nil {
		l.Logf("an upgrade meanwhile: %v", err)
	}
	<-ended
	if data, err := os.ReadFile(l.v.File); err != nil || string(data) != canaryText {
		l.Errorf("the outside: %q %v", data, err)
	}
	if err := l.install(l.Context(), l.who, pack{id: l.p.id, version: "1.2.0", permissions: l.p.permissions, hostile: true}, l.T); err != nil {
		l.Errorf("an upgrade afterwards: %v", err)
	}
}

// within holds that the server answers in time.
func (l *lab) within(d time.Duration, what string, do func() error) {
	l.Helper()
	began := time.Now()
	if err := do(); err != nil {
		l.Logf("%s: %v", what, err)
	}
	// What is looked for would take for ever: a slow machine gets its time.
	if took := time.Since(began); took > 6*d {
		l.Errorf("%s took %s", what, took)
	}
}

func fifos(l *lab) {
	if r := l.task("fifos"); r.Err != nil {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	l.within(10*time.Second, "the settings", func() error { return l.configure(map[string]any{"word": "x"}) })
	l.within(10*time.Second, "the doctor", func() error {
		var found any
		return l.admin.Do(l.Context(), http.MethodGet, extensionsDoor+"/doctor", nil, &found)
	})
	l.within(20*time.Second, "an upgrade", func() error {
		return l.install(l.Context(), l.who, pack{id: l.p.id, version: "1.1.0", permissions: l.p.permissions, hostile: true}, l.T)
	})
}

// Succeeded: a pipe that appeared between two calls held the server for ever.
func fifoRace(l *lab) {
	ended := make(chan run, 1)
	go func() { ended <- l.task("fiforace") }()
	work := filepath.Join(l.home, "extensions", l.p.id, "work")
	until(l.T, "it makes pipes", func() bool { _, err := os.Lstat(filepath.Join(work, "config.json")); return err == nil })
	l.within(15*time.Second, "settings under a race", func() error {
		for i := range 200 {
			if err := l.configure(map[string]any{"word": i}); err != nil {
				return err
			}
		}
		return nil
	})
	<-ended
}

func escapes(l *lab) {
	s := shell{l.T, l.server}
	out, code := s.command(l.T, l.home, "run", l.p.command()+" go escapes")
	if code != 1 {
		l.Errorf("%d %q", code, out)
	}
	r := l.task("escapes")
	for _, text := range []string{out, r.Output, r.Err.Error()} {
		for _, c := range text {
			if unicode.IsControl(c) && c != '\n' && c != '\t' || unicode.Is(unicode.Bidi_Control, c) {
				l.Errorf("%q holds %U", text, c)
				break
			}
		}
	}
	if !strings.Contains(out, "over") {
		l.Errorf("the last line is not told: %q", out)
	}
	raw, err := json.Marshal(l.records(l.T, "ext="+l.p.id))
	if err != nil || strings.Contains(string(raw), `\u001b`) || strings.Contains(string(raw), "\u202e") {
		l.Errorf("the audit holds them: %v %s", err, raw)
	}
}

func toldSecrets(l *lab) {
	const value = "sk-7f3Qq9-very-secret-value"
	if err := l.configure(map[string]any{"api_key": value}); err != nil {
		l.Fatal(err)
	}
	next := l.p
	next.version, next.env = "1.1.0", map[string]any{"secrets": map[string]string{"MY_SECRET": "api_key"}}
	next.actions = "    - {id: words, description: Words, runner: exec.echo, argv: ['{config:api_key}']}\n"
	if err := l.install(l.Context(), l.who, next, l.T); err != nil {
		l.Fatal(err)
	}
	r := l.task("secret")
	if r.Err == nil || strings.Contains(r.Output, "there is none") {
		l.Fatalf("%v %s", r.Err, r.Output)
	}
	words := l.run(l.Context(), l.who, "attacker", l.p.command()+" words")
	var config any
	if err := l.who.Do(l.Context(), http.MethodGet, extensionsDoor+"/"+l.p.id+"/config", nil, &config); err != nil {
		l.Error(err)
	}
	explained := l.run(l.Context(), l.who, "attacker", l.p.command()+" words --x")
	for name, text := range map[string]string{
		"the output": r.Output, "the error": r.Err.Error() + jsonText(r.Err.Details), "a word": words.Output + jsonText(words.Metadata),
		"the settings": jsonText(config), "another answer": explained.Output,
		"the audit": jsonText(l.records(l.T, "ext="+l.p.id)), "capabilities.log": l.log(l.T, "capabilities"),
		"the server's log": l.stderr.String(),
	} {
		if strings.Contains(text, value) || strings.Contains(text, value[:4]+"\\u0000"+value[4:]) ||
			strings.Contains(strings.Map(printable, text), value) {
			l.Errorf("%s holds the secret: %.400s", name, text)
		}
	}
	if data, err := os.ReadFile(filepath.Join(l.home, "extensions", l.p.id, "work", "config.json")); err == nil &&
		strings.Contains(string(data), value) {
		l.Error("the copy of the settings holds the secret")
	}
}

func printable(r rune) rune {
	if unicode.IsControl(r) {
		return -1
	}
	return r
}

// leftIPC: kernel objects that outlive every process. Succeeded at T2.
func leftIPC(l *lab) {
	database := "" // the servers of other tests, at the same time, have objects of this user
	if u, err := user.Lookup("postgres"); err == nil {
		database = u.Uid
	}
	objects := func() map[string]bool {
		found := make(map[string]bool)
		for _, name := range []string{"shm", "sem", "msg"} {
			data, _ := os.ReadFile("/proc/sysvipc/" + name)
			head, rows, _ := strings.Cut(string(data), "\n")
			owner := slices.Index(strings.Fields(head), "uid")
			for row := range strings.Lines(rows) {
				if cells := strings.Fields(row); owner >= 0 && owner < len(cells) && cells[owner] != database {
					found[name+" "+cells[1]] = true // its id
				}
			}
		}
		return found
	}
	before := objects()
	if r := l.task("ipc"); r.Err != nil {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	// Self-tests of other tests have three objects for a moment, and begin again and again: what comes after the
	// run is not its own.
	left := objects()
	maps.DeleteFunc(left, func(id string, _ bool) bool { return before[id] })
	for deadline := time.Now().Add(time.Minute); len(left) > 0; <-time.After(50 * time.Millisecond) {
		if time.Now().After(deadline) {
			l.Errorf("objects in the machine's memory: got %v of the run, want none", slices.Sorted(maps.Keys(left)))
			return
		}
		now := objects()
		maps.DeleteFunc(left, func(id string, _ bool) bool { return !now[id] })
	}
}

func deepFolders(l *lab) {
	l.v.N = 25000 // more than there are descriptors; with a long name as a path
	if r := l.task("deep"); r.Err != nil && r.Err.Reason != "resource_limit" {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	l.within(20*time.Second, "the doctor", func() error {
		var found any
		return l.admin.Do(l.Context(), http.MethodGet, extensionsDoor+"/doctor", nil, &found)
	})
	l.within(30*time.Second, "an upgrade", func() error {
		return l.install(l.Context(), l.who, pack{id: l.p.id, version: "1.1.0", permissions: l.p.permissions, hostile: true}, l.T)
	})
	out, _ := l.command(l.T, l.home, "extensions", "doctor")
	if strings.ContainsRune(out, 0x1b) {
		l.Errorf("the doctor prints names as they are: %q", out)
	}
}

func lockedFolder(l *lab) {
	if r := l.task("close"); r.Err != nil {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	l.within(10*time.Second, "a run in a locked folder", func() error {
		if r := l.task("fine"); r.Err != nil {
			return r.Err
		}
		return nil
	})
	work := filepath.Join(l.home, "extensions", l.p.id, "work")
	if err := os.Chmod(work, 0o700); err != nil { //nolint:gosec // as the person would
		l.Error(err)
	}
}

func sessionNames(l *lab) {
	for _, name := range []string{"a\nAGENTOS_X=1", strings.Repeat("s", 129), "../../x", "a b", "\x1b[2J", "a\x00b", "\u202ex"} {
		if r := l.run(l.Context(), l.who, name, l.p.command()+" go a15"); r.Err == nil {
			l.Errorf("the session %q was taken", name)
		}
	}
	if r := l.run(l.Context(), l.who, strings.Repeat("s", 128), l.p.command()+" fine"); r.Err != nil {
		l.Error(r.Err)
	}
}

// hostilePlan does it while it is installed.
func hostilePlan(l *lab) {
	mark := "planned-" + canaryMark + "-" + l.tier + l.user
	script := fmt.Sprintf("cat %s > stolen 2>&1; echo x >> %s; cat /etc/shadow >> stolen 2>&1; (setsid sh -c ': %s; sleep 300; :' </dev/null >/dev/null 2>&1 &); ln -s %s link; echo changed > link; exit 0", l.v.File, l.v.File, mark, l.v.File)
	next := l.p
	next.version, next.plan = "1.1.0", "{id: steal, type: exec.shell, command: "+jsonText(script)+"}"
	if err := l.install(l.Context(), l.who, next, l.T); err != nil {
		l.Logf("the plan: %v", err)
	}
	if left := processes(mark); len(left) > 0 {
		l.Errorf("alive: %v", left)
	}
	data, err := os.ReadFile(filepath.Join(l.home, "extensions", l.p.id, "work", "stolen"))
	if err != nil || strings.Contains(string(data), canaryText) || strings.Contains(string(data), "root:") {
		l.Errorf("it got %q, %v", data, err)
	}
}

// changedTool: an installed program that was changed is not run.
func changedTool(l *lab) {
	path := filepath.Join(l.home, "extensions", l.p.id, "tools", "hostile")
	good, err := os.ReadFile(path)
	if err != nil {
		l.Fatal(err)
	}
	if err := os.WriteFile(path, append(good, 0), 0o755); err != nil { //nolint:gosec // it was
		l.Fatal(err)
	}
	if r := l.task("fine"); r.Err == nil || r.Err.Reason != "security_violation" || strings.Contains(r.Output, "fine") {
		l.Errorf("a changed program: %q %v", r.Output, r.Err)
	}
	l.recorded(l.T, "event=security_violation&ext="+l.p.id, "security_violation")
	for _, other := range []func() error{
		func() error { return os.Remove(path) },
		func() error { return os.Symlink("/bin/sh", path) },
		func() error { _ = os.Remove(path); return os.Mkdir(path, 0o755) },            //nolint:gosec // a test
		func() error { _ = os.RemoveAll(path); return os.Symlink("/dev/zero", path) }, // never ends
	} {
		if err := other(); err != nil {
			l.Fatal(err)
		}
		if r := l.task("fine"); r.Err == nil || r.Took > 5*time.Second {
			l.Errorf("it ran, or took %s: %q", r.Took, r.Output)
		}
	}
	_ = os.RemoveAll(path)
	if err := os.WriteFile(path, good, 0o755); err != nil { //nolint:gosec // it was
		l.Fatal(err)
	}
}
