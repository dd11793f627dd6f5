package clients

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/platform/overlay"
)

// planYAML plans the changes of a YAML file whose servers are the members of one top-level mapping in
// block style. Each change is checked: the file means the same afterwards, but for that member.
func (c Client) planYAML(home, file string, now Config, own Server, remove []string) (
	changes []overlay.Change, left map[string]string, err error,
) {
	left = make(map[string]string)
	text, key := now.Text, c.Keys[0]
	anchor, _, indent := yamlBlock(text, key)
	if now.Connected && own.isSet() {
		remove = append(slices.Clone(remove), EntryName) // which the undo puts back
	}
	for _, name := range remove {
		entry, rest, ok := cutYAML(text, key, name)
		if !ok && name == EntryName {
			return nil, nil, c.broken(file, "its entry of junctor cannot be replaced safely; remove it by hand")
		}
		if !ok {
			left[name] = "its entry in the file cannot be removed safely"
			continue
		}
		changes = append(changes, overlay.Change{Kind: overlay.Cut, Root: home, Path: file, Text: string(entry), Anchor: anchor})
		text = rest
	}
	if !own.isSet() {
		return changes, left, nil
	}
	entry := yamlEntry(indent, own)
	change := overlay.Change{Kind: overlay.Insert, Root: home, Path: file, Text: entry, Anchor: anchor}
	if anchor == "" {
		change = overlay.Change{Kind: overlay.Block, Hash: true, Root: home, Path: file, Text: key + ":\n" + entry}
	}
	after, err := overlay.Preview(text, "setup", []overlay.Change{change})
	if err != nil || !sameYAML(after, text, key, EntryName) {
		return nil, nil, c.broken(file, key+" cannot be edited safely; add junctor by hand")
	}
	return append(changes, change), left, nil
}

// RemoveEntry returns a YAML text without junctor's entry, for a file that its client has written again.
// ok is false if it cannot be removed safely.
func (c Client) RemoveEntry(text []byte) (rest []byte, ok bool) {
	if c.Format != YAML {
		return nil, false
	}
	_, rest, ok = cutYAML(text, c.Keys[0], EntryName)
	return rest, ok
}

// yamlEntry returns the lines of junctor as a server of goose.
func yamlEntry(indent string, own Server) string {
	var b strings.Builder
	line := func(depth int, format string, values ...any) {
		b.WriteString(indent + strings.Repeat("  ", depth))
		fmt.Fprintf(&b, format+"\n", values...)
	}
	line(0, "%s:", EntryName)
	line(1, "enabled: true")
	if own.URL != "" {
		line(1, "type: streamable_http")
		line(1, "name: %s", EntryName)
		line(1, "uri: %s", strconv.Quote(own.URL))
		line(1, "headers:")
		for _, name := range slices.Sorted(maps.Keys(own.Headers)) {
			line(2, "%s: %s", strconv.Quote(name), strconv.Quote(own.Headers[name]))
		}
	} else {
		line(1, "type: stdio")
		line(1, "name: %s", EntryName)
		line(1, "cmd: %s", strconv.Quote(own.Command))
		line(1, "args:")
		for _, arg := range own.Args {
			line(1, "- %s", strconv.Quote(arg))
		}
	}
	line(1, "envs: {}")
	line(1, "timeout: 300")
	return b.String()
}

var yamlKey = regexp.MustCompile(`^( *)(?:"([^"\\]+)"|'([^']+)'|([^\s"'#:][^#:]*)):(?:\s|$)`)

// yamlBlock finds the top-level key whose value is a mapping in block style: its line, the lines of
// its members, and their indentation. All are empty if the key does not exist in this form.
func yamlBlock(text []byte, key string) (anchor string, members [][]byte, indent string) {
	indent = "  "
	first := true
	for line := range bytes.Lines(text) {
		plain := strings.TrimRight(string(line), "\r\n ")
		m := yamlKey.FindStringSubmatch(plain + " ")
		blank := strings.TrimSpace(plain) == "" || strings.HasPrefix(strings.TrimSpace(plain), "#")
		switch {
		case anchor == "":
			rest := strings.TrimSpace(strings.TrimPrefix(plain, key+":"))
			if m != nil && m[1] == "" && m[4] == key && (rest == "" || rest[0] == '#') {
				anchor = string(line)
			}
		case !blank && !strings.HasPrefix(plain, " "):
			return anchor, members, indent
		default:
			if first && !blank {
				indent, first = plain[:len(plain)-len(strings.TrimLeft(plain, " "))], false
			}
			members = append(members, line)
		}
	}
	return anchor, members, indent
}

// cutYAML finds the lines of a member of the mapping key. ok is false unless the text without them has
// the same meaning except for that member.
func cutYAML(text []byte, key, name string) (entry, rest []byte, ok bool) {
	_, members, indent := yamlBlock(text, key)
	from, to := -1, len(members)
	for i, line := range members {
		m := yamlKey.FindStringSubmatch(strings.TrimRight(string(line), "\r\n ") + " ")
		switch {
		case m == nil || m[1] != indent:
		case from >= 0:
			to = min(to, i)
		case m[2]+m[3]+strings.TrimSpace(m[4]) == name:
			from = i
		}
	}
	if from < 0 {
		return nil, nil, false
	}
	for to > from+1 { // comments before the next member stay
		if line := strings.TrimSpace(string(members[to-1])); line != "" && line[0] != '#' {
			break
		}
		to--
	}
	entry = bytes.Join(members[from:to], nil)
	if bytes.Count(text, entry) != 1 {
		return nil, nil, false
	}
	rest = bytes.Replace(text, entry, nil, 1)
	return entry, rest, sameYAML(text, rest, key, name)
}

// sameYAML reports whether a text without the member name of key has the meaning of another one.
func sameYAML(with, without []byte, key, name string) bool {
	var docs [2]map[string]any
	for i, text := range [][]byte{with, without} {
		doc, err := yamljson.ToJSON(text, "client_config")
		if err != nil || json.Unmarshal(doc, &docs[i]) != nil {
			return false
		}
		if docs[i] == nil {
			docs[i] = make(map[string]any)
		}
	}
	return sameBut(docs[0], docs[1], key, name)
}

// readGoose reads the form of goose, where a server is one kind of an extension.
func readGoose(raw json.RawMessage) (Server, string) {
	var in struct {
		Type, Cmd, URI string
		Args           []string
		Envs, Headers  map[string]string
		Enabled        *bool
		EnvKeys        []string `json:"env_keys"`
	}
	if err := json.Unmarshal(raw, &in); err != nil {
		return Server{}, unknownForm
	}
	s := Server{Command: in.Cmd, Args: in.Args, Env: in.Envs, URL: in.URI, Headers: in.Headers}
	switch {
	case in.Type == "sse":
		return s, "its transport is sse"
	case in.Type != "stdio" && in.Type != "streamable_http":
		return s, ofClient
	case in.Enabled != nil && !*in.Enabled:
		return s, "it is disabled"
	case len(in.EnvKeys) > 0:
		return s, "its credentials are in the keyring of the client"
	}
	return s, ""
}

// yamlDocument returns a YAML text as JSON.
func yamlDocument(text []byte) ([]byte, error) {
	doc, err := yamljson.ToJSON(text, "client_config")
	if err != nil {
		return nil, fmt.Errorf("it is not YAML that can be read: %s", capability.AsError(err).Message)
	}
	return doc, nil
}
