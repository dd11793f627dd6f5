package router

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
)

var schemePrefix = regexp.MustCompile(`^[a-zA-Z][a-zA-Z\d+.-]*:`)

var (
	errPathUnsafe = errors.New("holds a character or a segment that is not allowed in a path")
	errPathForm   = errors.New("must be a path that starts with one '/' and has no empty segment")
	errAssetForm  = errors.New("must be a relative asset path without a scheme and without empty segments")
	errURL        = errors.New("must be an absolute http or https URL without credentials")
)

// CheckLocalPath returns an error unless p is a local app path: it starts with one '/' and has
// neither query, fragment, backslash, scheme or control character, nor an empty, "." or ".."
// segment. "/" alone is valid. Unlike the original it also rejects segments that become ".",
// ".." or contain a slash after percent-decoding.
func CheckLocalPath(p string) error {
	if !strings.HasPrefix(p, "/") || strings.HasPrefix(p, "//") {
		return errPathForm
	}
	if p == "/" {
		return nil
	}
	return checkSegments(p[1:])
}

// CheckAssetPath returns an error unless p is a valid asset path. A leading slash is optional; "//"
// and a path without a segment are errors. Surrounding blanks are accepted, because the
// original trims them; [CleanAssetPath] removes them.
func CheckAssetPath(p string) error {
	t := trimJS(p)
	if t == "" || strings.HasPrefix(t, "//") || schemePrefix.MatchString(t) {
		return errAssetForm
	}
	if strings.IndexFunc(p, isControl) >= 0 {
		return errPathUnsafe
	}
	return checkSegments(strings.TrimPrefix(t, "/"))
}

// CleanAssetPath checks p and returns its canonical form: trimmed, with one leading slash. "a.js"
// and "/a.js" are the same asset.
func CleanAssetPath(p string) (string, error) {
	if err := CheckAssetPath(p); err != nil {
		return "", err
	}
	return "/" + strings.TrimPrefix(trimJS(p), "/"), nil
}

func checkSegments(rest string) error {
	if strings.ContainsAny(rest, "?#\\") || strings.IndexFunc(rest, isControl) >= 0 {
		return errPathUnsafe
	}
	for seg := range strings.SplitSeq(rest, "/") {
		if seg == "" {
			return errPathForm
		}
		if !safeSegment(seg) {
			return errPathUnsafe
		}
	}
	return nil
}

// safeSegment reports whether a segment is safe, both as written and percent-decoded, because the
// next server may decode it once more.
func safeSegment(seg string) bool {
	if seg == "." || seg == ".." {
		return false
	}
	if !strings.Contains(seg, "%") {
		return true
	}
	dec := decodePercent(seg)
	return dec != "." && dec != ".." && !strings.ContainsAny(dec, "/\\") && strings.IndexFunc(dec, isControl) < 0
}

// decodePercent decodes valid percent escapes and leaves all other text unchanged.
func decodePercent(s string) string {
	var b strings.Builder
	for i := 0; i < len(s); i++ {
		if s[i] == '%' && i+2 < len(s) && isHex(s[i+1]) && isHex(s[i+2]) {
			n, _ := strconv.ParseUint(s[i+1:i+3], 16, 8)
			b.WriteByte(byte(n))
			i += 2
			continue
		}
		b.WriteByte(s[i])
	}
	return b.String()
}

func isControl(r rune) bool { return r < ' ' || r == 0x7f }

// trimJS trims the characters of ECMAScript's trim: Unicode spaces and the byte order mark.
func trimJS(s string) string {
	return strings.Trim(strings.TrimSpace(s), "\ufeff \t\r\n")
}

func blank(s string) bool { return trimJS(s) == "" }

// CheckBrowserURL returns an error unless s is a URL for browsers: http or https, without user and
// password. It is as lenient as browsers (surrounding blanks, "http:host", upper-case schemes),
// because manifests rely on that, except that it rejects a host with a percent sign or an empty
// user before '@'.
func CheckBrowserURL(s string) error {
	s = strings.TrimFunc(s, func(r rune) bool { return r <= ' ' })
	s = strings.NewReplacer("\t", "", "\n", "", "\r", "").Replace(s)
	scheme, rest, ok := strings.Cut(s, ":")
	if !ok || !strings.EqualFold(scheme, "http") && !strings.EqualFold(scheme, "https") {
		return errURL
	}
	rest = strings.TrimLeft(rest, "/\\")
	if i := strings.IndexAny(rest, "/\\?#"); i >= 0 {
		rest = rest[:i]
	}
	if !validAuthority(rest) {
		return errURL
	}
	return nil
}

// validAuthority reports whether a is a host, which may be an IPv6 address in brackets, with an
// optional port and without user.
func validAuthority(a string) bool {
	if strings.ContainsAny(a, "@<>^|% \"`{}") || strings.IndexFunc(a, isControl) >= 0 {
		return false
	}
	var host, port string
	if strings.HasPrefix(a, "[") {
		end := strings.IndexByte(a, ']')
		if end < 0 {
			return false
		}
		addr, err := netip.ParseAddr(a[1:end])
		if err != nil || !addr.Is6() {
			return false
		}
		host, port = a[:end+1], a[end+1:]
		if port != "" && port[0] != ':' {
			return false
		}
		port = strings.TrimPrefix(port, ":")
	} else {
		host, port, _ = strings.Cut(a, ":")
		if strings.ContainsAny(host, "[]") {
			return false
		}
	}
	if host == "" {
		return false
	}
	if port == "" {
		return true
	}
	n, err := strconv.ParseUint(port, 10, 32)
	return err == nil && n <= 65535
}

// CheckModuleID returns an error unless id is a valid module id: one or more of [A-Za-z0-9._-], but
// neither "." nor "..", which the original accepts but which would break asset URLs.
func CheckModuleID(id string) error {
	if id == "." || id == ".." || id == "" {
		return errModuleID
	}
	for i := range len(id) {
		c := id[i]
		if !isDigit(c) && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z') && c != '.' && c != '_' && c != '-' {
			return errModuleID
		}
	}
	return nil
}

// ModuleID returns a name as a module id: itself if it is valid, else with '-' for each character that
// ids lack, and with a digest, so that the ids of different names differ.
func ModuleID(name string) string {
	if CheckModuleID(name) == nil {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.Map(func(r rune) rune {
		if r != '.' && CheckModuleID(string(r)) != nil {
			return '-'
		}
		return r
	}, name) + "-" + hex.EncodeToString(sum[:4])
}

var errModuleID = errors.New("must be of letters, digits, '.', '_' and '-', and neither \".\" nor \"..\"")
