package main

import (
	"fmt"
	"regexp"
	"strings"
)

// versionForm is a version without build metadata, as semver.org has it but for zeros.
var versionForm = regexp.MustCompile(`^\d+\.\d+\.\d+(-[0-9A-Za-z]+([.-][0-9A-Za-z]+)*)?$`)

func validVersion(v string) bool { return versionForm.MatchString(v) }

// entry returns what CHANGELOG.md says about a version, heading and all. A pre-release
// has the entry of the version that it leads to. A version that nothing is said about is
// not released.
func entry(changelog, version string) (string, error) {
	core, _, _ := strings.Cut(version, "-")
	for _, v := range []string{version, core} {
		var b strings.Builder
		in := false
		for line := range strings.Lines(changelog) {
			if strings.HasPrefix(line, "## ") {
				in = strings.HasPrefix(line, "## ["+v+"]")
			}
			if in {
				b.WriteString(line)
			}
		}
		text := strings.TrimSpace(b.String())
		if _, said, _ := strings.Cut(text, "\n"); strings.TrimSpace(said) != "" {
			return text + "\n", nil
		}
	}
	return "", fmt.Errorf("CHANGELOG.md says nothing about %s: write its entry, beginning with ## [%s], first", version, core)
}
