package clients

import (
	"bytes"
	"fmt"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/junctor-run/junctor/internal/platform/overlay"
)

// Plan returns the changes that give a client the server junctor, which is own, and remove other
// servers from it. A zero own leaves the entry of junctor as it is. home is the folder that contains the
// file. A server that cannot be removed safely is left out and returned in left, with the reason.
func (c Client) Plan(home, file string, now Config, own Server, remove []string) (
	changes []overlay.Change, left map[string]string, err error,
) {
	if err := c.Check(own); err != nil {
		return nil, nil, err
	}
	if c.Format == TOML {
		changes, left = c.planTOML(home, file, now, own, remove)
		return changes, left, nil
	}
	if c.Format == YAML {
		return c.planYAML(home, file, now, own, remove)
	}
	var edits []overlay.Edit
	if own.isSet() {
		value, err := c.value(own)
		if err != nil {
			return nil, nil, err
		}
		edits = append(edits, overlay.Edit{Keys: append(slices.Clone(c.Keys), EntryName), Value: value})
	}
	for _, name := range remove {
		edits = append(edits, overlay.Edit{Keys: append(slices.Clone(c.Keys), name), Remove: true})
	}
	return []overlay.Change{{Kind: overlay.Merge, Root: home, Path: file, Edits: edits}}, nil, nil
}

func (c Client) planTOML(home, file string, now Config, own Server, remove []string) (
	changes []overlay.Change, left map[string]string,
) {
	left = make(map[string]string)
	text := now.Text
	for _, name := range remove {
		table, rest, ok := cutTable(text, c.Keys[0], name)
		if !ok {
			left[name] = "its table in the file cannot be removed safely"
			continue
		}
		changes = append(changes, overlay.Change{Kind: overlay.Cut, Root: home, Path: file, Text: string(table)})
		text = rest
	}
	if !own.isSet() {
		return changes, left
	}
	var b strings.Builder
	fmt.Fprintf(&b, "[%s.%s]\n", c.Keys[0], EntryName)
	if own.URL != "" {
		var headers []string
		for _, name := range slices.Sorted(maps.Keys(own.Headers)) {
			headers = append(headers, strconv.Quote(name)+" = "+strconv.Quote(own.Headers[name]))
		}
		fmt.Fprintf(&b, "url = %s\nhttp_headers = { %s }\n", strconv.Quote(own.URL), strings.Join(headers, ", "))
	} else {
		var args []string
		for _, arg := range own.Args {
			args = append(args, strconv.Quote(arg))
		}
		fmt.Fprintf(&b, "command = %s\nargs = [%s]\n", strconv.Quote(own.Command), strings.Join(args, ", "))
	}
	changes = append(changes, overlay.Change{Kind: overlay.Block, Hash: true, Root: home, Path: file, Text: b.String()})
	return changes, left
}

var tableHeader = regexp.MustCompile(`^\s*\[\[?\s*(.+?)\s*\]\]?\s*(#.*)?$`)

// cutTable finds the lines of the table key.name with its subtables in a TOML text. ok is false
// unless the text without them has the same meaning except for that table.
func cutTable(text []byte, key, name string) (table, rest []byte, ok bool) {
	from, to, at, inside := -1, -1, 0, false
	quotes := "" // that end the string of several lines that a line is in
	for line := range bytes.Lines(text) {
		if m := tableHeader.FindSubmatch(bytes.TrimRight(line, "\r\n")); m != nil && quotes == "" {
			inside = ofTable(string(m[1]), key, name)
			if inside && from < 0 {
				from = at
			}
		}
		for _, q := range []string{`"""`, "'''"} {
			if (quotes == "" || quotes == q) && bytes.Count(line, []byte(q))%2 == 1 {
				quotes = map[bool]string{true: q}[quotes == ""]
				break
			}
		}
		at += len(line)
		if inside {
			to = at
		}
	}
	if from < 0 {
		return nil, nil, false
	}
	table = text[from:to]
	if bytes.Count(text, table) != 1 {
		return nil, nil, false
	}
	rest = slices.Concat(text[:from], text[to:])
	var before, after map[string]any
	if toml.Unmarshal(text, &before) != nil || toml.Unmarshal(rest, &after) != nil {
		return nil, nil, false
	}
	if _, isTable := before[key].(map[string]any); !isTable {
		return nil, nil, false
	}
	return table, rest, sameBut(before, after, key, name)
}

// sameBut reports whether a document without the member name of key equals another one. It changes both.
func sameBut(with, without map[string]any, key, name string) bool {
	members, _ := with[key].(map[string]any)
	delete(members, name)
	for _, doc := range []map[string]any{with, without} {
		if left, isTable := doc[key].(map[string]any); isTable && len(left) == 0 || doc[key] == nil {
			delete(doc, key)
		}
	}
	return reflect.DeepEqual(with, without)
}

// ofTable reports whether a header names the table key.name or one below it.
func ofTable(header, key, name string) bool {
	var doc map[string]any
	if toml.Unmarshal([]byte(header+" = 1"), &doc) != nil {
		return false
	}
	servers, _ := doc[key].(map[string]any)
	_, found := servers[name]
	return found
}

// Difference returns the lines that differ between two texts, removed ones with "-" and added
// ones with "+", with one line of context.
func Difference(before, after []byte) string {
	a, b := strings.SplitAfter(string(before), "\n"), strings.SplitAfter(string(after), "\n")
	head := 0
	for head < len(a) && head < len(b) && a[head] == b[head] {
		head++
	}
	tail := 0
	for tail < len(a)-head && tail < len(b)-head && a[len(a)-1-tail] == b[len(b)-1-tail] {
		tail++
	}
	var out strings.Builder
	write := func(mark string, lines []string) {
		for _, line := range lines {
			if line != "" {
				out.WriteString(mark + strings.TrimRight(line, "\r\n") + "\n")
			}
		}
	}
	write("  ", a[max(0, head-1):head])
	write("- ", a[head:len(a)-tail])
	write("+ ", b[head:len(b)-tail])
	write("  ", a[len(a)-tail:min(len(a), len(a)-tail+1)])
	return out.String()
}
