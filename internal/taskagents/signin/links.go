package signin

import (
	"net"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"
)

// trusted returns the hosts whose addresses may be opened in a browser.
func trusted() []string {
	return []string{"claude.ai", "platform.claude.com", "console.anthropic.com", "auth.openai.com", "chatgpt.com", "accounts.google.com"}
}

// openable reports whether an address may be opened in a browser.
func openable(text string) bool {
	u, err := url.Parse(text)
	return err == nil && u.Scheme == "https" && u.User == nil && len(text) <= maxURL && slices.Contains(trusted(), u.Host)
}

// found holds the data of a login on a screen.
type found struct {
	url, code string
	others    []string // addresses that may not be opened
	asks      bool     // the program asks for a code that the page shows
}

// look finds the login's addresses and code in lines of width cols and in links, which have
// addresses that lines may wrap.
func look(lines []string, cols int, links []string) (f found) {
	for _, address := range append(slices.Clone(links), addresses(lines, cols)...) {
		switch {
		case openable(address):
			if f.url == "" {
				f.url = address
			}
		case !loopback(address) && !slices.Contains(f.others, address):
			f.others = append(f.others, address)
		}
	}
	f.code = deviceCode(lines)
	f.asks = slices.ContainsFunc(lines, func(line string) bool { return strings.Contains(strings.ToLower(line), "paste code") })
	return f
}

func loopback(address string) bool {
	u, err := url.Parse(address)
	if err != nil {
		return false
	}
	ip := net.ParseIP(u.Hostname())
	return u.Hostname() == "localhost" || ip.IsLoopback()
}

var (
	address = regexp.MustCompile(`https?://[!-~]+`)
	rest    = regexp.MustCompile(`^[!-~]+$`)
	code    = regexp.MustCompile(`^[A-Z0-9]{4}-[A-Z0-9]{4,6}$`)
)

// addresses returns the URLs in lines. A URL that reaches the right edge continues in the next
// line if that is one word. That of Codex has three lines at 120 columns.
func addresses(lines []string, cols int) (list []string) {
	for y, line := range lines {
		for _, at := range address.FindAllStringIndex(line, -1) {
			whole := line[at[0]:at[1]]
			for next := y + 1; at[1] == len(line) && next < len(lines) && next <= y+maxWraps && full(lines[next-1], cols); next++ {
				more := strings.TrimLeft(lines[next], " ")
				if !rest.MatchString(more) || address.MatchString(more) {
					break
				}
				whole += more
			}
			if whole = strings.TrimRight(whole, `.,;:!)]}>"'`); len(whole) <= maxURL {
				list = append(list, whole)
			}
		}
	}
	return list
}

// full reports whether a line reaches the right edge; boxes leave two columns.
func full(line string, cols int) bool { return utf8.RuneCountInString(line) >= cols-2 }

// deviceCode returns the first word with the form of a device code, on or below a line that
// contains "code".
func deviceCode(lines []string) string {
	spoken := false
	for _, line := range lines {
		spoken = spoken || strings.Contains(strings.ToLower(line), "code")
		for _, word := range strings.Fields(line) {
			if word = strings.Trim(word, `.,:;"'()│|`); spoken && code.MatchString(word) {
				return word
			}
		}
	}
	return ""
}
