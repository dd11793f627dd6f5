package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// setting is a line of a unit.
type setting struct{ section, key, value string }

// readUnit reads a unit. That of a user's server is part of the program, which installs it too.
func readUnit(t *testing.T, name string) []byte {
	t.Helper()
	if name == "junctor.user.service" {
		name = "../cmd/junctor/" + name
	}
	return read(t, name)
}

func unitOf(t *testing.T, name string) []setting {
	t.Helper()
	var list []setting
	var section string
	for i, line := range strings.Split(string(readUnit(t, name)), "\n") {
		line = strings.TrimSpace(line)
		key, value, ok := strings.Cut(line, "=")
		switch {
		case line == "" || line[0] == '#':
		case line[0] == '[' && strings.HasSuffix(line, "]"):
			section = line
		case !ok || section == "" || strings.ContainsAny(key, " \t"):
			t.Errorf("%s:%d: %q is not a setting", name, i+1, line)
		default:
			list = append(list, setting{section, key, value})
		}
	}
	return list
}

func (s setting) String() string { return s.section + s.key + "=" + s.value }

func TestUnitsStartTheServerAndLeaveItsSandboxItsMeans(t *testing.T) {
	t.Parallel()
	for name, want := range map[string][]string{
		"junctor.service": {
			"[Service]ExecStart=/usr/local/bin/junctor serve", "[Service]User=junctor", "[Service]Environment=JUNCTOR_HOME=/var/lib/junctor",
			"[Service]StateDirectory=junctor", "[Service]StateDirectoryMode=0700", "[Service]NoNewPrivileges=yes", "[Service]ProtectSystem=strict",
			"[Install]WantedBy=multi-user.target",
		},
		"junctor.user.service": {"[Service]ExecStart=%h/.local/bin/junctor serve", "[Install]WantedBy=default.target"},
	} {
		list := unitOf(t, name)
		var said []string
		for _, s := range list {
			said = append(said, s.String())
			// Each of these takes from the sandbox what its walls are built of.
			if slices.Contains([]string{
				"RestrictNamespaces", "SystemCallFilter", "SystemCallArchitectures", "PrivateUsers",
				"ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "ProtectProc", "ProcSubset", "ProtectHostname",
				"MemoryDenyWriteExecute", "PrivateNetwork",
			}, s.key) {
				t.Errorf("%s: %s", name, s)
			}
		}
		// The server is given ten seconds for what runs; it says nothing to the manager of its
		// own, so Type is not notify.
		for _, line := range append(want, "[Service]Type=exec", "[Service]KillMode=mixed", "[Service]TimeoutStopSec=30", "[Service]UMask=0077") {
			if !slices.Contains(said, line) {
				t.Errorf("%s does not say %s; want said with %v", name, line, line)
			}
		}
	}
}

// TestUnitsGiveUpOnWhatDoesNotMend: systemd stops starting a unit that was started Burst times
// within the interval. What fails at once must come to that within a minute, and what fails
// after ten seconds must come to it at all.
func TestUnitsGiveUpOnWhatDoesNotMend(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"junctor.service", "junctor.user.service"} {
		seconds := map[string]int{}
		for _, s := range unitOf(t, name) {
			if n, err := strconv.Atoi(s.value); err == nil {
				seconds[s.section+s.key] = n
			}
		}
		rest, interval, burst := seconds["[Service]RestartSec"], seconds["[Unit]StartLimitIntervalSec"], seconds["[Unit]StartLimitBurst"]
		if rest == 0 || burst < 3 || (burst-1)*rest > 60 || burst*(rest+10) > interval {
			t.Errorf("%s: %d starts in %d s, %d s apart; want rest other than 0, burst at least 3, (burst - 1) * rest at most "+
				"60, burst * (rest + 10) at most %v", name, burst, interval, rest, interval)
		}
	}
}

func TestSystemdTakesTheUnits(t *testing.T) {
	t.Parallel()
	analyze, err := exec.LookPath("systemd-analyze")
	if err != nil {
		t.Skip("systemd-analyze is not here")
	}
	for name, manager := range map[string]string{"junctor.service": "--system", "junctor.user.service": "--user"} {
		dir := t.TempDir()
		there := regexp.MustCompile(`(?m)^ExecStart=\S+`).ReplaceAll(readUnit(t, name), []byte("ExecStart=/bin/sh"))
		path := filepath.Join(dir, "junctor.service")
		write(t, path, string(there))
		cmd := exec.Command(analyze, "verify", manager, path)
		cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+dir)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s: %v %s; want no error, len(out) at most 0", name, err, out)
		}
	}
}

// instruction is one of a container file, continued lines joined.
type instruction struct{ word, rest string }

func containerFile(t *testing.T) []instruction {
	t.Helper()
	var list []instruction
	joined := strings.ReplaceAll(regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(read(t, "Containerfile")), ""), "\\\n", " ")
	for line := range strings.Lines(joined) {
		if word, rest, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			list = append(list, instruction{word, strings.TrimSpace(rest)})
		} else if word != "" {
			t.Errorf(`%q is not an instruction; want word = ""`, line)
		}
	}
	return list
}

// TestTheContainerFileHolds is what can be said without an engine: each instruction is one,
// what is copied exists, and what runs is not root, keeps its home and can be asked.
func TestTheContainerFileHolds(t *testing.T) {
	t.Parallel()
	stages, last := map[string]bool{}, map[string]string{}
	image := regexp.MustCompile(`^[a-z0-9./-]+:[a-z0-9][a-z0-9.-]*( AS ([a-z]+))?$`)
	for i, in := range containerFile(t) {
		if i == 0 && in.word != "FROM" {
			t.Errorf(`it begins with %s; want not (i == 0 && in.word != "FROM")`, in.word)
		}
		switch in.word {
		case "FROM":
			m := image.FindStringSubmatch(in.rest)
			if m == nil || strings.Contains(in.rest, ":latest") {
				t.Errorf(`FROM %s does not name a version; want m not nil, in.rest without ":latest"`, in.rest)
				continue
			}
			stages[m[2]], last = true, map[string]string{}
		case "COPY":
			words := strings.Fields(in.rest)
			if stage, ok := strings.CutPrefix(words[0], "--from="); ok {
				if !stages[stage] {
					t.Errorf("COPY from %s, which is not a stage", stage)
				}
				continue
			}
			for _, source := range words[:len(words)-1] {
				if _, err := os.Stat(filepath.Join("..", source)); err != nil {
					t.Errorf("COPY %s: %v", source, err)
				}
			}
		case "RUN":
			if strings.Contains(in.rest, "curl") || strings.Contains(in.rest, "wget") || strings.Contains(in.rest, "sudo") {
				t.Errorf(`RUN %s; want in.rest without "curl", in.rest without "wget", in.rest without "sudo"`, in.rest)
			}
		case "WORKDIR", "ARG", "ENV", "USER", "VOLUME", "EXPOSE", "HEALTHCHECK", "ENTRYPOINT", "CMD":
		default:
			t.Errorf("%s is not among the instructions that are needed", in.word)
		}
		last[in.word] = in.rest
	}
	if user, _, _ := strings.Cut(last["USER"], ":"); user == "" || user == "0" || user == "root" {
		t.Errorf(`it runs as %q; want user other than "", user other than "0", user other than "root"`, last["USER"])
	}
	if last["ENV"] != "JUNCTOR_HOME="+last["VOLUME"] {
		t.Errorf(`the home is %q, the volume %q; want last["ENV"] = "JUNCTOR_HOME=" + last["VOLUME"]`, last["ENV"], last["VOLUME"])
	}
	var entry, command, health []string
	_, check, _ := strings.Cut(last["HEALTHCHECK"], "CMD ")
	for text, into := range map[string]*[]string{last["ENTRYPOINT"]: &entry, last["CMD"]: &command, check: &health} {
		if err := json.Unmarshal([]byte(text), into); err != nil {
			t.Errorf("%s goes through a shell: %v", text, err)
		}
	}
	if !slices.Equal(entry, []string{"junctor"}) || !slices.Equal(health, []string{"junctor", "health"}) || len(command) == 0 ||
		command[0] != "serve" {
		t.Errorf(`it runs %v %v, and is asked by %v; want entry = []string{"junctor"}, health = []string{"junctor", "health"}, `+
			`len(command) other than 0, command[0] = "serve"`, entry, command, health)
	}
	if listen := slices.Index(command, "--listen"); listen < 0 || !strings.HasSuffix(command[listen+1], ":"+last["EXPOSE"]) ||
		!slices.Contains(command, "--insecure-plain-http") {
		t.Errorf(`it listens by %v, and exposes %s; want listen at least 0, command[listen+1] ending with ":" + last["EXPOSE"], `+
			`command with "--insecure-plain-http"`, command, last["EXPOSE"])
	}
}
