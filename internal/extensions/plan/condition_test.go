package plan_test

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

func TestConditions(t *testing.T) {
	t.Parallel()
	at := plan.PlatformOf("linux", "amd64")
	for text, want := range map[string]bool{
		"":                                      true,
		"  ":                                    true,
		"true":                                  true,
		"false":                                 false,
		"not true":                              false,
		`platform.os == "linux"`:                true,
		`platform_os != 'linux'`:                false,
		`platform.arch=="x64"`:                  true,
		`platform_arch in ["arm64",'x64']`:      true,
		`platform.os not in ['darwin','win32']`: true,
		`not platform.os in ["linux"]`:          false,
		`false and false or true`:               true,
		`true or true and false`:                true,
		`(true or true) and false`:              false,
		`not (platform.os == "linux" and platform.arch == "arm64")`: true,
		`platform.os == "it's"`: false,
	} {
		w, err := plan.ParseCondition(text)
		if err != nil || w.Holds(at) != want {
			t.Errorf("%s: %v; want no error, w.Holds(at) = %v", text, err, want)
		}
	}
	if p := plan.PlatformOf("windows", "aarch64"); p.OS != "win32" || p.Arch != "arm64" {
		t.Errorf(`p.OS = %q, want "win32"; p.Arch = %q, want "arm64"`, p.OS, p.Arch)
	}
}

func TestMalformedConditionsAreErrors(t *testing.T) {
	t.Parallel()
	for _, text := range []string{
		"().__class__", "platform", "platform.os", `platform.os = "linux"`, `"linux" == platform.os`, `platform.os == linux`,
		`platform.os in "linux"`, `platform.os in []`,
		`platform.os in ["a"`, `platform.os in ["a",]`, "true true", "not", "not not true", "and", "true and", "(true", "true)",
		`platform.os == "x`, "__import__('os')", "true;", "TRUE",
		`platform.os == "linux" # yes`, "env.HOME == 'x'", `platform.os not "x"`, strings.Repeat("(", 100) + "true" + strings.Repeat(")", 100),
		strings.Repeat(" ", 2000) + "true",
	} {
		_, err := plan.ParseCondition(text)
		if e := capability.AsError(err); e == nil || e.Code != capability.CodeInvalidInput || e.Reason != plan.ReasonCondition {
			t.Errorf("%.60s: %v; want e not nil, e.Code = capability.CodeInvalidInput, e.Reason = plan.ReasonCondition", text, err)
		}
	}
}

func FuzzParseCondition(f *testing.F) {
	for _, s := range []string{
		`platform.os in ["linux", 'darwin'] and not (platform_arch == "x64" or false)`, "().__class__", "not not",
		`"'`, "((((", "platform.os not in ['a']",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		w, err := plan.ParseCondition(s)
		if err != nil {
			return
		}
		at := plan.Platform{OS: "linux", Arch: "x64"}
		// What can be read can be read as a part.
		if strings.TrimSpace(s) != "" && len(s) < 900 {
			not, err := plan.ParseCondition("not (" + s + ")")
			if err == nil && not.Holds(at) == w.Holds(at) {
				t.Fatalf("%q is what it is not; want not (err == nil && not.Holds(at) == w.Holds(at))", s)
			}
			if err != nil && strings.Count(s, "(") < 30 {
				t.Fatalf(`%q: %v; want not (err != nil && strings.Count(s, "(") < 30)`, s, err)
			}
		}
	})
}
