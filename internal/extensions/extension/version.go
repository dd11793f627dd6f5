package extension

import (
	"cmp"
	"regexp"
	"strings"
)

const semver = `^(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})\.(0|[1-9]\d{0,8})(?:-((?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*)(?:\.(?:0|[1-9]\d*|\d*[a-zA-Z-][0-9a-zA-Z-]*))*))?(?:\+([0-9a-zA-Z-]+(?:\.[0-9a-zA-Z-]+)*))?$`

// ValidVersion reports whether v is a semantic version of at most 64 bytes.
func ValidVersion(v string) bool { return len(v) <= 64 && regexp.MustCompile(semver).MatchString(v) }

// CompareVersions compares two valid versions; build metadata is ignored.
func CompareVersions(a, b string) int {
	x, y := regexp.MustCompile(semver).FindStringSubmatch(a), regexp.MustCompile(semver).FindStringSubmatch(b)
	if x == nil || y == nil {
		return cmp.Compare(a, b)
	}
	for i := 1; i <= 3; i++ {
		if c := number(x[i], y[i]); c != 0 {
			return c
		}
	}
	switch {
	case x[4] == y[4]:
		return 0
	case x[4] == "": // a release comes after its previews
		return 1
	case y[4] == "":
		return -1
	}
	p, q := strings.Split(x[4], "."), strings.Split(y[4], ".")
	for i := range min(len(p), len(q)) {
		digits := func(s string) bool { return strings.Trim(s, "0123456789") == "" }
		c := 0
		switch dp, dq := digits(p[i]), digits(q[i]); {
		case dp && dq:
			c = number(p[i], q[i])
		case dp:
			c = -1
		case dq:
			c = 1
		default:
			c = cmp.Compare(p[i], q[i])
		}
		if c != 0 {
			return c
		}
	}
	return cmp.Compare(len(p), len(q))
}

// number compares two decimal numbers of any length without leading zeros.
func number(a, b string) int {
	if c := cmp.Compare(len(a), len(b)); c != 0 {
		return c
	}
	return cmp.Compare(a, b)
}
