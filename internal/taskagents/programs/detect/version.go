package detect

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs"

	"github.com/junctor-run/junctor/capability"
)

// Pick returns the file for a program and its version. If no file covers the version, it returns
// the nearest one and a remark for users. For version "" it returns the newest. Of equal files
// the first in the list wins, so that files of the override folder do.
func Pick(files []*File, name programs.Name, version string) (f *File, remark string, err error) {
	for _, each := range files {
		if each.Framework != name {
			continue
		}
		if covers(each.Min, each.Max, version) && version != "" {
			return each, "", nil
		}
		if f == nil || nearer(each, f, version) {
			f = each
		}
	}
	if f == nil {
		return nil, "", capability.Errorf(capability.CodeNotFound, "framework.rules", "there is no rule file for %s", name)
	}
	return f, f.Remark(version), nil
}

// Remark returns a sentence for users if a version is outside of the range that the file was
// tested with, and "" otherwise or if the version is unknown.
func (f *File) Remark(version string) string {
	if covers(f.Min, f.Max, version) {
		return ""
	}
	return fmt.Sprintf("version %s of %s is not among those its rules were checked with (%s to %s)", version, f.Display, orAny(f.Min),
		orAny(f.Max))
}

// nearer reports whether a is a better choice than b for a version that neither covers. The best
// is the last file that begins at or before the version, otherwise the first one after it.
func nearer(a, b *File, version string) bool {
	before := func(f *File) bool { return version == "" || f.Min == "" || compareVersions(f.Min, version) <= 0 }
	if before(a) != before(b) {
		return before(a)
	}
	c := compareVersions(a.Min, b.Min)
	return before(a) && c > 0 || !before(a) && c < 0
}

func covers(low, high, version string) bool {
	if version == "" {
		return true
	}
	return (low == "" || compareVersions(version, low) >= 0) && (high == "" || compareVersions(version, high) <= 0)
}

func orAny(v string) string {
	if v == "" {
		return "any"
	}
	return v
}

// validVersion reports whether v is "" or up to four numbers separated by dots.
func validVersion(v string) bool {
	if v == "" {
		return true
	}
	parts := strings.Split(v, ".")
	for _, p := range parts {
		if _, err := strconv.ParseUint(p, 10, 32); err != nil {
			return false
		}
	}
	return len(parts) <= 4
}

// compareVersions compares versions number by number. Suffixes such as "-beta" are ignored, and
// missing numbers are 0.
func compareVersions(a, b string) int {
	left, right := strings.Split(a, "."), strings.Split(b, ".")
	for i := range max(len(left), len(right)) {
		if c := cmp.Compare(number(left, i), number(right, i)); c != 0 {
			return c
		}
	}
	return 0
}

func number(parts []string, i int) (n uint64) {
	if i >= len(parts) {
		return 0
	}
	for _, c := range parts[i] {
		if c < '0' || c > '9' || n > 1<<32 {
			break
		}
		n = n*10 + uint64(c-'0')
	}
	return n
}
