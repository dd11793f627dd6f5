package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// as returns a function that parses a text with read and sets key to the result.
func as(key string, read func(text string) (any, error)) func(string, *foreignSays) error {
	return func(text string, f *foreignSays) error {
		value, err := read(text)
		if err == nil {
			f.keys[key] = value
		}
		return err
	}
}

// hidden returns a function that records a text as the secret name.
func hidden(name string) func(string, *foreignSays) error {
	return func(text string, f *foreignSays) error {
		f.hide(name, text)
		return nil
	}
}

func text(s string) (any, error) { return s, nil }

// choice returns a parser of one of words, in any case. also maps further spellings to words.
func choice(also map[string]string, words ...string) func(string) (any, error) {
	return func(s string) (any, error) {
		s = strings.ToLower(s)
		if meant, ok := also[s]; ok {
			s = meant
		}
		if !slices.Contains(words, s) {
			return nil, fmt.Errorf("%.60q must be one of %s", s, strings.Join(append(words, slices.Sorted(maps.Keys(also))...), ", "))
		}
		return s, nil
	}
}

// agentType returns a parser of a program's name; "none" is parsed as "".
func agentType(programs []Program) func(string) (any, error) {
	return func(s string) (any, error) {
		if strings.EqualFold(s, "none") {
			return "", nil
		}
		name, ok := programNamed(programs, s)
		if !ok {
			return nil, fmt.Errorf("%.60q must be one of %s, none", s, programNames(programs))
		}
		return name, nil
	}
}

func truth(s string) (any, error) {
	value, known := elizaFlag(s)
	if !known {
		return nil, fmt.Errorf("%.60q must be 1, true, yes, on or 0, false, no, off", s)
	}
	return value, nil
}

// untruth parses a boolean and returns its negation.
func untruth(s string) (any, error) {
	value, err := truth(s)
	on, _ := value.(bool)
	return !on, err
}

func number(least, most int) func(string) (any, error) {
	return func(s string) (any, error) {
		n, err := strconv.Atoi(s)
		if err != nil || n < least || n > most {
			return nil, fmt.Errorf("%.60q must be a whole number from %d to %d", s, least, most)
		}
		return n, nil
	}
}

func millis(least int) func(string) (any, error) {
	return func(s string) (any, error) {
		n, err := number(least, maxMillis)(s)
		return fmt.Sprint(n, "ms"), err
	}
}

func model(s string) (any, error) {
	if s != "" && !ValidModel(s) {
		return nil, fmt.Errorf("%.60q is not a name of a model: one word that does not begin with a hyphen", s)
	}
	return s, nil
}

func serviceURL(s string) (any, error) {
	u, err := url.Parse(s)
	if err != nil || u.Host == "" || u.User != nil || u.Scheme != "http" && u.Scheme != "https" {
		return nil, errors.New("it is not an http or https address without credentials")
	}
	return s, nil
}

func policyText(s string) (any, error) { return s, rolePolicy(s) }

func names(s string) (any, error) {
	list := strings.FieldsFunc(s, func(r rune) bool { return r == ',' || r == ' ' })
	if i := slices.IndexFunc(list, func(name string) bool { return !variableForm.MatchString(name) }); i >= 0 || len(list) > maxCustomKeys {
		return nil, fmt.Errorf("it is not a list of up to %d names of variables", maxCustomKeys)
	}
	return list, nil
}

func folder(s string) (any, error) {
	list, err := folders(s)
	if err != nil || len(list.([]string)) != 1 {
		return nil, errors.New("it is not the absolute path of one folder")
	}
	return list.([]string)[0], nil
}

// folders parses a comma-separated list of directories, in which ~ is the user's home.
func folders(s string) (any, error) {
	home, _ := os.UserHomeDir()
	list := []string{}
	for part := range strings.SplitSeq(s, ",") {
		part = strings.TrimSpace(part)
		if rest, found := strings.CutPrefix(part, "~"); found && home != "" && (rest == "" || rest[0] == '/') {
			part = home + rest
		}
		if part == "" {
			continue
		}
		if !filepath.IsAbs(part) {
			return nil, fmt.Errorf("%.200q is not an absolute path", part)
		}
		list = append(list, part)
	}
	return list, nil
}

// members parses the JSON object of a variable and returns it. For each member in read, it
// sets the key that keys names; it ignores all other members but debug, which sets
// log.level. The values may be secrets, so errors for the whole object do not quote them.
func members(s string, read map[string]func(string) (any, error), keys map[string]string,
	f *foreignSays,
) (map[string]json.RawMessage, error) {
	var doc map[string]json.RawMessage
	if jsonx.Unmarshal([]byte(s), &doc) != nil || doc == nil {
		return nil, errors.New("it is not a JSON object")
	}
	for _, name := range slices.Sorted(maps.Keys(read)) {
		raw, ok := doc[name]
		if !ok || string(raw) == "null" {
			continue
		}
		value, err := plain(raw)
		if err == nil {
			err = as(keys[name], read[name])(value, f)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	if string(doc["debug"]) == "true" {
		f.keys["log.level"] = "debug"
	}
	return doc, nil
}

func terminals(s string, f *foreignSays) error {
	_, err := members(s,
		map[string]func(string) (any, error){
			"maxConcurrentSessions": number(1, 200), "maxSessions": number(1, 200), "idleTimeoutMs": millis(0),
			"defaultRows": number(5, 200), "defaultCols": number(20, 500),
		},
		map[string]string{
			"maxConcurrentSessions": "agents.max_sessions", "maxSessions": "agents.max_sessions",
			"idleTimeoutMs": "agents.idle_timeout", "defaultRows": "agents.rows", "defaultCols": "agents.cols",
		}, f)
	return err
}

// workspaces reads the JSON object with the settings of workspaces, and the token in its
// member credentials.github.
func workspaces(s string, f *foreignSays) error {
	doc, err := members(s,
		map[string]func(string) (any, error){"baseDir": folder, "branchPrefix": text, "workspaceTtlMs": millis(1)},
		map[string]string{"baseDir": "agents.workspace_base", "branchPrefix": "agents.branch_prefix", "workspaceTtlMs": "agents.workspace_ttl"},
		f)
	if err != nil || doc["credentials"] == nil {
		return err
	}
	var said struct {
		GitHub struct {
			Token string `json:"token"`
		} `json:"github"`
	}
	if json.Unmarshal(doc["credentials"], &said) != nil {
		return errors.New("credentials.github.token is not a text")
	}
	f.hide("GITHUB_TOKEN", said.GitHub.Token)
	return nil
}
