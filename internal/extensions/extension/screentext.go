package extension

import (
	"fmt"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/extensions/declaration"
)

// Text renders the screen for a terminal. Text of the package cannot imitate text of the
// server: its line breaks are indented and its control characters removed.
func (s *Screen) Text() string {
	var w screenWriter
	w.line("%s %s (%s)", safe(s.Name), s.Version, s.ID)
	if s.Description != "" {
		w.line("  %s", block(s.Description, "  "))
	}
	if s.Author != "" || s.License != "" {
		w.line("  by %s, license %s", quoted(s.Author), quoted(s.License))
	}
	w.line("  from %s, tree hash %s", safe(s.Source), s.TreeHash)
	if len(s.More) > 0 {
		w.head("It asks for more than was agreed to before")
		for _, m := range s.More {
			w.line("  + %s", safe(m))
		}
	}
	w.head("It may")
	for _, p := range s.Permissions {
		w.line("  %-6s  %s (%s)", p.Risk, p.Grants, p.Name)
		reason := "the author gives no reason"
		if p.Reason != "" {
			reason = "the author says: " + quoted(p.Reason)
		}
		if len(p.Actions) > 0 {
			reason += ", for " + safe(strings.Join(p.Actions, ", "))
		}
		w.line("          %s", reason)
	}
	if len(s.Permissions) == 0 {
		w.line("  nothing beyond showing its commands")
	}
	s.reach(&w)
	w.head("Its commands")
	for _, c := range s.Commands {
		w.line("  %s  %s", c.Name, safe(c.Summary))
		for _, a := range c.Actions {
			note := ""
			if a.AgentTool {
				note += " [agents may call it]"
			}
			if when := asking(a.Confirm); when != "" {
				note += " [asks " + when + "]"
			}
			w.line("    %s  %s%s", a.ID, block(a.Description, "      "), note)
		}
	}
	w.steps("While it is installed, it does this", s.Steps)
	w.steps("When it is removed, it does this", s.Uninstall)
	w.head("It runs in a sandbox of tier %s or better, or not at all", s.Tier)
	s.limits(&w)
	return w.String()
}

func (s *Screen) reach(w *screenWriter) {
	switch {
	case s.AnyHost:
		w.head("It connects to ANY host, unfiltered")
	case len(s.Hosts) > 0:
		w.head("It connects to these hosts only")
		for _, h := range s.Hosts {
			w.line("  %s", safe(h))
		}
	case slices.ContainsFunc(s.Permissions, func(p ScreenPermission) bool { return p.Name == "network" }):
		w.head("It lists no hosts, so it can connect to none")
	}
	if len(s.Binaries) > 0 {
		w.head("It runs these programs")
		for _, b := range s.Binaries {
			if b.SHA256 == "" {
				w.line("  %s  of this machine", b.Name)
			} else {
				w.line("  %s  its own, sha256 %s", b.Name, b.SHA256)
			}
		}
	}
	if len(s.Secrets)+len(s.Environment) > 0 {
		w.head("Its programs are given")
		for _, x := range s.Secrets {
			w.line("  the secret %s, as %s", quoted(x.From), x.Variable)
		}
		for _, name := range s.Environment {
			w.line("  the server's variable %s", name)
		}
	}
}

type screenWriter struct{ strings.Builder }

func (w *screenWriter) line(format string, args ...any) { fmt.Fprintf(w, format+"\n", args...) }

func (w *screenWriter) head(format string, args ...any) { w.line("\n"+format, args...) }

func (w *screenWriter) steps(title string, list []ScreenStep) {
	if len(list) == 0 {
		return
	}
	w.head("%s", title)
	for _, s := range list {
		when := ""
		if s.When != "" {
			when = " (if " + safe(s.When) + ")"
		}
		w.line("  %s: %s%s", s.ID, block(s.What, "      "), when)
	}
}

// safe returns s as one line without control characters.
func safe(s string) string { return text.OneLine(declaration.Clean(s, 4096)) }

func quoted(s string) string {
	return "“" + strings.NewReplacer("“", "'", "”", "'").Replace(safe(s)) + "”"
}

// block returns s without control characters, each further line behind the indent and a bar.
func block(s, indent string) string {
	lines := strings.Split(strings.TrimSpace(declaration.Clean(strings.ToValidUTF8(s, "?"), 33_000)), "\n")
	return strings.Join(lines, "\n"+indent+"| ")
}

func (s *Screen) limits(w *screenWriter) {
	var parts []string
	for _, x := range []struct {
		value int64
		words string
	}{
		{int64(s.Limits.TimeoutSec), "%d seconds"},
		{int64(s.Limits.CPUSeconds), "%d seconds of processor time"},
		{int64(s.Limits.MemoryMB), "%d MB of memory"},
		{int64(s.Limits.MaxProcesses), "%d processes"},
		{int64(s.Limits.DiskMB), "%d MB of disk"},
		{s.Limits.MaxOutputBytes, "%d bytes of output"},
	} {
		if x.value > 0 {
			parts = append(parts, fmt.Sprintf(x.words, x.value))
		}
	}
	if len(parts) > 0 {
		w.line("  each run wants up to %s", strings.Join(parts, ", "))
	}
}
