package attack

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var neighbours sync.Mutex

// TestAttacks makes every attack of the table, A1 to A25.
func TestAttacks(t *testing.T) {
	writes := []string{"filesystem.write"}
	tryAll(t, []attack{
		{name: "A1", permissions: writes, do: func(l *lab) { l.neighbour(); l.stopped("a1", 7) }},
		{name: "A2", permissions: writes, do: func(l *lab) { l.neighbour(); l.stopped("a2", 18); l.otherIsUntouched() }},
		{name: "A3", permissions: writes, do: linksAreNotFollowed},
		{name: "A4", permissions: writes, do: func(l *lab) { l.neighbour(); l.stopped("a4", 10); l.otherIsUntouched() }},
		{name: "A5", permissions: writes, do: func(l *lab) { l.stopped("a5", 6) }},
		{name: "A6", permissions: writes, do: workDirectories},
		{name: "A7", process: true, do: func(l *lab) { l.stopped("a7", 30) }},
		{name: "A8", process: true, do: func(l *lab) { l.stopped("a8", 40) }},
		{name: "A9", permissions: writes, do: func(l *lab) { l.stopped("a9", 14) }},
		{name: "A10", do: func(l *lab) { l.stopped("a10", 6); l.v.nobodyReached(l.T) }},
		{name: "A11", do: func(l *lab) { l.stopped("a11", 4); l.v.nobodyReached(l.T) }},
		{name: "A12", permissions: writes, do: unixSocketsAreOutOfReach},
		{name: "A13", do: func(l *lab) { l.stopped("a13", 19) }},
		{name: "A14", permissions: []string{"network"}, network: []string{"a.test"}, do: onlyDeclaredHosts},
		{name: "A15", do: environmentIsBuilt},
		{name: "A16", limits: map[string]int{"max_processes": 40}, do: forkBomb},
		{name: "A17", limits: map[string]int{"memory_mb": 96}, do: memoryIsBounded},
		{name: "A18", limits: map[string]int{"cpu_seconds": 1}, timeout: 60, do: func(l *lab) {
			r := l.task("a18")
			l.limited(r, "resource_limit", "cpu")
			if r.Took > 30*time.Second {
				l.Errorf("it took %s", r.Took)
			}
		}},
		{name: "A19", timeout: 60, do: outputIsBounded},
		{name: "A20", permissions: writes, limits: map[string]int{"disk_mb": 8}, timeout: 60, do: diskIsBounded},
		{name: "A21", timeout: 2, alone: true, do: func(l *lab) {
			r := l.task("a21")
			if r.Err == nil || r.Err.Code != "timeout" || !strings.Contains(r.Output, "begun") || fmt.Sprint(r.Err.Details["exit_code"]) != "124" {
				l.Errorf("%v %v %q", r.Err, detailsOf(r), r.Output)
			}
			if r.Took > 8*time.Second { // 2 and 3, and what a busy machine takes
				l.Errorf("it took %s", r.Took)
			}
			l.recordedRun(run{}, "capability_timeout", `"sandbox":"`+l.tier+`"`)
		}},
		{name: "A22", timeout: 6, alone: true, do: nobodySurvives},
		{name: "A23", process: true, do: func(l *lab) {
			before := niceness(l.pid)
			l.stopped("a23", 20)
			if after := niceness(l.pid); after != before {
				l.Errorf("the server's priority was %s and is %s", before, after)
			}
		}},
		{name: "A24", permissions: writes, do: func(l *lab) {
			v := l.stopped("a24", 44)
			if l.user == "root" && (len(v.says) != 1 || slices.Contains(v.says, "uid 0")) {
				l.Errorf("it runs as %v", v.says)
			}
		}},
		{name: "A25", do: hostileInputs},
	})
}

func (l *lab) otherIsUntouched() {
	l.Helper()
	if data, err := os.ReadFile(l.v.OtherWork); err != nil || string(data) != canaryText {
		l.Errorf("another extension's file: %q %v", data, err)
	}
}

// linksAreNotFollowed also lets the server do everything that it does in the
// working folder afterwards, with links where its own files would be.
func linksAreNotFollowed(l *lab) {
	l.stopped("a3", 11)
	if err := l.configure(map[string]any{"word": "changed"}); err != nil {
		l.Logf("settings: %v", err)
	}
	l.v.untouched(l.T)
	var found any
	if err := l.admin.Do(l.Context(), http.MethodGet, extensionsDoor+"/doctor", nil, &found); err != nil {
		l.Error(err)
	}
	next := l.p
	next.version = "1.1.0"
	next.plan = "{id: mark, type: exec.shell, command: 'echo changed > mark; echo changed > config.json; true'}, {id: conf, type: write.config, config_key: a, config_value: b}"
	if err := l.install(l.Context(), l.who, next, l.T); err != nil {
		l.Logf("upgrade: %v", err)
	}
	l.v.untouched(l.T)
}

// workDirectories: a user who can change the server's own folders, what is not the
// extension's working folder is not entered.
func workDirectories(l *lab) {
	work := filepath.Join(l.home, "extensions", l.p.id, "work")
	twin := pack{id: l.p.id + "-evil", permissions: []string{"exec", "filesystem.write"}, hostile: true}
	if err := l.install(l.Context(), l.who, twin, l.T); err != nil {
		l.Fatal(err)
	}
	twinWork := filepath.Join(l.home, "extensions", twin.id, "work")
	for name, to := range map[string]string{
		"outside": l.v.Dir, "a sibling": twinWork, "relative": "../../" + twin.id + "/work",
		"up": work + "-real/../../" + twin.id + "/work",
	} {
		l.swapped(work, func() error { return os.Symlink(to, work) }, name)
	}
	l.swapped(work, func() error { return os.WriteFile(work, nil, 0o600) }, "a file")
	l.swapped(work, func() error { return nil }, "nothing")
	for _, body := range []map[string]any{
		{"command": l.p.command() + " fine", "work_dir": "/etc"}, {"command": l.p.command() + " fine", "session_id": "../../x"},
	} {
		if err := l.who.Do(l.Context(), http.MethodPost, extensionsDoor+"/execute", body, nil); err == nil {
			l.Errorf("%v was accepted", body)
		}
	}
	if err := l.uninstall(l.Context(), l.who, twin.id); err != nil {
		l.Error(err)
	}
}

// swapped runs with something else in the working folder's place.
func (l *lab) swapped(work string, put func() error, name string) {
	l.Helper()
	if err := os.Rename(work, work+"-real"); err != nil {
		l.Fatal(err)
	}
	if err := put(); err != nil {
		l.Fatal(err)
	}
	r := l.task("fine")
	if r.Err == nil || r.Err.Reason != "security_violation" || strings.Contains(r.Output, "fine") {
		l.Errorf("%s: %v %q", name, r.Err, r.Output)
	}
	_ = os.RemoveAll(work)
	if err := os.Rename(work+"-real", work); err != nil {
		l.Fatal(err)
	}
	l.recorded(l.T, "event=security_violation&ext="+l.p.id, "security_violation")
	until(l.T, "security.log has it", func() bool { return strings.Contains(l.log(l.T, "security"), `"event": "security_violation"`) })
}

func unixSocketsAreOutOfReach(l *lab) {
	if l.tier == "T3" {
		l.stopped("a12", 4)
		l.v.nobodyReached(l.T)
		return
	}
	r := l.task("a12")
	for _, b := range read(r.Output).broken {
		if !strings.Contains(b, "pathname socket") {
			l.Errorf("it got through: %s", b)
		}
	}
	status, err := l.status(l.T)
	if err != nil {
		l.Fatal(err)
	}
	told := false
	for _, tier := range status.Tiers {
		for _, act := range tier.Residual {
			told = told || tier.Tier == "T2" && act.Act == "connect to an outside unix socket"
		}
	}
	if !told {
		l.Errorf("sandbox status does not tell of what T2 cannot stop: %+v", status.Tiers)
	}
	l.Logf("RESIDUAL: at T2 as %s: %v", l.user, read(r.Output).broken)
}

func environmentIsBuilt(l *lab) {
	l.p.env = map[string]any{"pass": []string{"AWS_SECRET_ACCESS_KEY", "OPENAI_API_KEY", "LD_PRELOAD", "BASH_ENV", "JUNCTOR_SANDBOX_MIN_TIER"}}
	l.p.version = "1.1.0" // once more, asking for them
	if err := l.install(l.Context(), l.who, l.p, l.T); err != nil {
		l.Fatal(err)
	}
	r := l.task("a15")
	v := read(r.Output)
	if r.Err != nil || len(v.says) < 12 || len(v.broken) > 0 {
		l.Errorf("%v %s", r.Err, r.Output)
	}
	allowed := strings.Fields("PATH HOME TMPDIR USER LOGNAME LANG LC_ALL PWD AGENTOS_EXTENSION_ID AGENTOS_RUN_ID AGENTOS_SESSION_ID AGENTOS_WORK_DIR")
	for _, kv := range v.says {
		name, value, _ := strings.Cut(kv, "=")
		if !slices.Contains(allowed, name) || strings.Contains(value, canaryText) || strings.Contains(value, canaryMark) {
			l.Errorf("it sees %s", kv)
		}
	}
}

func forkBomb(l *lab) {
	mark := fmt.Sprint("30.", l.pid)
	l.v.N, l.v.Names = 200, []string{mark}
	ended := make(chan run, 1)
	go func() { ended <- l.task("a16") }()
	for range 3 { // others start what they need meanwhile
		r := l.fine("other")
		if r.Err != nil || strings.TrimSpace(r.Output) != "fine" {
			l.Errorf("beside a fork bomb: %q %v", r.Output, r.Err)
		}
	}
	r := <-ended
	v := read(r.Output)
	if r.Err == nil || len(v.broken) > 0 || len(v.says) == 0 && r.Err.Reason != "resource_limit" {
		l.Errorf("200 processes with a limit of 40: %v %s", r.Err, r.Output)
	}
	l.recordedRun(run{}, "capability_failed", `"sandbox":"`+l.tier+`"`)
	if left := processes("sleep\x00" + mark); len(left) > 0 {
		l.Errorf("%d processes are left: %v %v", len(left), r.Err, detailsOf(r))
		for _, d := range []time.Duration{10, 100, 1000, 3000} {
			time.Sleep(d * time.Millisecond)
			l.Errorf("after %d ms more: %d", d, len(processes("sleep\x00"+mark)))
		}
	}
}

func memoryIsBounded(l *lab) {
	before := l.rss()
	l.v.N = 400
	r := l.task("a17")
	l.limited(r, "resource_limit", "memory")
	if strings.Contains(r.Output, "BROKE") {
		l.Errorf("400 MiB fitted into 96: %s", r.Output)
	}
	l.v.N = 48
	r = l.task("a17split")
	l.limited(r, "resource_limit", "memory")
	if strings.Count(r.Output, "BROKE") == 8 {
		l.Error("8 times 48 MiB fitted into 96")
	}
	if after := l.rss(); after > before+64<<20 {
		l.Errorf("the server grew from %d to %d MiB", before>>20, after>>20)
	}
}

func outputIsBounded(l *lab) {
	before := l.rss()
	for _, task := range []string{"a19out", "a19err", "a19line"} {
		r := l.task(task)
		l.limited(r, "output_limit", "")
		if len(r.Output) > 3<<20 {
			l.Errorf("%s: %d bytes were kept", task, len(r.Output))
		}
		if r.Took > 30*time.Second {
			l.Errorf("%s took %s", task, r.Took)
		}
	}
	if after := l.rss(); after > before+128<<20 {
		l.Errorf("the server grew from %d to %d MiB", before>>20, after>>20)
	}
}

func diskIsBounded(l *lab) {
	for _, one := range []struct {
		task, reason, kind string
		n                  int
	}{
		{"a20huge", "", "", 0}, {"a20sparse", "", "", 0}, {"a20tiny", "resource_limit", "disk", 20000}, {"a20tmp", "", "", 0},
	} {
		l.v.N = one.n
		r := l.task(one.task)
		v := read(r.Output)
		if len(v.broken) > 0 || r.Err == nil || one.reason != "" && r.Err.Reason != one.reason || one.kind != "" &&
			r.Err.Details["kind"] != one.kind {
			l.Errorf("%s: %v %v %s", one.task, r.Err, detailsOf(r), r.Output)
		}
		if r.Took > 20*time.Second {
			l.Errorf("%s took %s", one.task, r.Took)
		}
		work := filepath.Join(l.home, "extensions", l.p.id, "work")
		if used := occupied(work); used > 128<<20 {
			l.Errorf("%s: %d MiB are in the working folder", one.task, used>>20)
		}
		for _, name := range []string{"huge", "sparse", "tiny"} { // the person tidies up
			_ = os.RemoveAll(filepath.Join(work, name))
		}
	}
	if left, _ := filepath.Glob(filepath.Join(base, "tmp", "junctor-run-*")); len(left) > 8 { // of runs beside this one
		l.Errorf("temporary folders are left: %v", left)
	}
}

func occupied(dir string) (bytes int64) {
	_ = filepath.Walk(dir, func(_ string, info os.FileInfo, err error) error {
		if err == nil && info.Mode().IsRegular() {
			bytes += blocks(info)
		}
		return nil
	})
	return bytes
}

func nobodySurvives(l *lab) {
	for _, task := range []string{"a22hang", "a22exit"} {
		mark := "daemon-" + canaryMark + "-" + l.tier + l.user + task
		l.v.Names = []string{mark}
		// The mark is in the words of the program itself as well; it is gone by then.
		r := l.task(task)
		if task == "a22hang" && (r.Err == nil || r.Err.Code != "timeout") || task == "a22exit" &&
			(r.Err != nil || fmt.Sprint(r.Metadata["exit_code"]) != "0") {
			l.Errorf("%s: %v %v %s", task, r.Err, detailsOf(r), r.Output)
		}
		if !strings.Contains(r.Output, "started 9") {
			l.Errorf("%s: %s", task, r.Output)
		}
		if limit := map[string]time.Duration{"a22hang": 13 * time.Second, "a22exit": 12 * time.Second}[task]; r.Took > limit {
			l.Errorf("%s took %s", task, r.Took)
		}
		if left := processes(mark); len(left) > 0 {
			l.Errorf("%s: alive: %v", task, left)
		}
	}
}

// niceness is the kernel's fields about a process that others might have changed.
func niceness(pid int) string {
	data, _ := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	fields := strings.Fields(string(data[bytes.LastIndexByte(data, ')')+1:]))
	limits, _ := os.ReadFile(fmt.Sprintf("/proc/%d/limits", pid))
	if len(fields) < 20 {
		return "gone"
	}
	return strings.Join(fields[15:17], " ") + string(limits)
}
