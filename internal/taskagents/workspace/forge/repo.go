package forge

import (
	"net/url"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

// ReasonInvalidRepo is the reason of the error for a text that does not name a repository, or
// not the required one.
const ReasonInvalidRepo = "invalid_repo"

// Repo is a repository that the policy allows.
type Repo struct {
	URL   string `json:"url"`             // argument for git; without password
	Host  string `json:"host,omitempty"`  // host[:port]; "" for a local folder
	Owner string `json:"owner,omitempty"` // may contain slashes, for groups
	Name  string `json:"name"`
	Dir   string `json:"dir,omitempty"` // folder of a local repository
}

// Policy decides which repositories may be used. The zero value allows the three forges.
type Policy struct {
	// Hosts are allowed in addition to github.com, gitlab.com and bitbucket.org, each as host
	// or host:port, by https and ssh.
	Hosts []string
	// OperatorPrefixes allow every repository below one of them: absolute folders of this
	// machine, or http and https URLs. Only the operator's configuration sets them, because
	// repositories in folders run their hooks.
	OperatorPrefixes []string
}

var (
	shortForm = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]{0,99}/[A-Za-z0-9_.-]{1,100}$`)
	scpForm   = regexp.MustCompile(`^([A-Za-z0-9_][A-Za-z0-9_.-]{0,63})@([A-Za-z0-9][A-Za-z0-9.-]{0,252}):([^:]+)$`)
	userName  = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]{0,63}$`)
	segment   = regexp.MustCompile(`^[A-Za-z0-9_.~+-]+$`)
)

// Parse parses owner/name (of github.com), an https or ssh URL, or git@host:path. Errors:
// invalid_input with reason missing_repo, invalid_repo_domain for a host that is not allowed,
// or invalid_repo for others, such as other schemes, passwords or options.
func (p Policy) Parse(text string) (Repo, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return Repo{}, capability.Errorf(capability.CodeInvalidInput, "workspace.repo", "no repository was named").
			With("missing_repo", "give owner/name or the URL of a repository")
	case len(text) > maxURL, strings.ContainsFunc(text, func(r rune) bool { return r <= ' ' || r == 0x7f || r == '\\' }), text[0] == '-':
		return Repo{}, badRepo("it is longer than 2048 bytes, begins with a dash, or holds blanks or backslashes")
	}
	if r, ok, err := p.byOperator(text); ok || err != nil {
		return r, err
	}
	if shortForm.MatchString(text) {
		text = "https://github.com/" + text
	} else if m := scpForm.FindStringSubmatch(text); m != nil {
		text = "ssh://" + m[1] + "@" + m[2] + "/" + m[3]
	}
	u, err := url.Parse(text)
	if err != nil || u.Opaque != "" {
		return Repo{}, badRepo("it is not a URL")
	}
	if u.Scheme != "https" && u.Scheme != "ssh" {
		return Repo{}, badRepo("only https and ssh are used")
	}
	if _, password := u.User.Password(); password || u.Scheme == "https" && u.User != nil || u.User != nil &&
		!userName.MatchString(u.User.Username()) {
		return Repo{}, badRepo("credentials do not belong into a URL")
	}
	host := strings.ToLower(u.Host)
	known := []string{"github.com", "gitlab.com", "bitbucket.org"}
	if host == "" || !slices.Contains(known, host) && !slices.ContainsFunc(p.Hosts,
		func(h string) bool { return strings.EqualFold(h, host) }) {
		return Repo{}, capability.Errorf(capability.CodeInvalidInput, "workspace.repo", "repositories of this host are not allowed").
			With("invalid_repo_domain", "use github.com, gitlab.com, bitbucket.org or a host that the operator allowed")
	}
	r, err := named(u)
	if err != nil {
		return Repo{}, err
	}
	r.Host = host
	clean := url.URL{Scheme: u.Scheme, User: u.User, Host: host, Path: "/" + r.Owner + "/" + r.Name}
	if r.URL = clean.String(); slices.Contains(known, host) || strings.HasSuffix(u.Path, ".git") {
		r.URL += ".git"
	}
	return r, nil
}

// named splits the path of u into owner and name, and fails with invalid_repo unless both are
// valid.
func named(u *url.URL) (Repo, error) {
	if u.RawQuery != "" || u.ForceQuery || u.Fragment != "" || u.RawPath != "" {
		return Repo{}, badRepo("it has a query, a fragment or escapes")
	}
	path := strings.TrimSuffix(strings.Trim(u.Path, "/"), ".git")
	parts := strings.Split(path, "/")
	for _, s := range parts {
		if len(s) > 255 || !segment.MatchString(s) || s[0] == '-' || strings.Trim(s, ".") == "" {
			return Repo{}, badRepo("its path is not that of a repository")
		}
	}
	last := len(parts) - 1
	if last < 1 || last > 8 {
		return Repo{}, badRepo("its path is not that of a repository")
	}
	return Repo{Owner: strings.Join(parts[:last], "/"), Name: parts[last]}, nil
}

// byOperator returns the repository if an operator's prefix allows it; the result is false if
// none does.
func (p Policy) byOperator(text string) (Repo, bool, error) {
	for _, prefix := range p.OperatorPrefixes {
		if filepath.IsAbs(prefix) {
			if !filepath.IsAbs(text) || filepath.Clean(text) != text {
				continue
			}
			root, err1 := filepath.EvalSymlinks(prefix)
			dir, err2 := filepath.EvalSymlinks(text)
			if err1 != nil || err2 != nil {
				continue
			}
			if rel, err := filepath.Rel(root, dir); err != nil || !filepath.IsLocal(rel) {
				continue
			}
			return Repo{URL: dir, Dir: dir, Name: strings.TrimSuffix(filepath.Base(dir), ".git")}, true, nil
		}
		rest, ok := strings.CutPrefix(text, strings.TrimSuffix(prefix, "/")+"/")
		if !ok || !strings.HasPrefix(prefix, "http://") && !strings.HasPrefix(prefix, "https://") {
			continue
		}
		u, err := url.Parse(text)
		if err != nil || u.User != nil || u.RawQuery != "" || u.Fragment != "" || u.RawPath != "" || rest == "" {
			return Repo{}, false, badRepo("it has credentials, a query, a fragment or escapes")
		}
		parts := strings.Split(strings.TrimSuffix(rest, ".git"), "/")
		for _, s := range parts {
			if len(s) > 255 || !segment.MatchString(s) || s[0] == '-' || strings.Trim(s, ".") == "" {
				return Repo{}, false, badRepo("its path is not that of a repository")
			}
		}
		last := len(parts) - 1
		return Repo{URL: text, Host: u.Host, Owner: strings.Join(parts[:last], "/"), Name: parts[last]}, true, nil
	}
	return Repo{}, false, nil
}

func badRepo(why string) error {
	return capability.Errorf(capability.CodeInvalidInput, "workspace.repo", "that is not a repository that can be used: %s", why).
		With(ReasonInvalidRepo, "give owner/name, https://host/owner/name or git@host:owner/name")
}
