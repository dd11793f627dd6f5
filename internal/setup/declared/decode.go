package declared

import (
	"errors"
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/secret"
)

// The kinds of objects.
const (
	Upstream = "upstream"
	Endpoint = "endpoint"
)

// ReasonFault is the reason of an error about files that cannot be used.
const ReasonFault = "declaration_fault"

// entry is the declaration of one object.
type entry struct {
	kind, name string
	file       string // relative to the home
	line       int
	spec       []byte // JSON, as its owner reads it
	lines      yamljson.Lines
}

func (e *entry) key() string { return e.kind + " " + e.name }

// fault returns the error for a part of the entry, which path leads to.
func (e *entry) fault(path []string, format string, args ...any) error {
	line := e.lines.Line(append([]string{e.kind + "s", e.name}, path...)...)
	return fault(e.file, line, format, args...)
}

// refused returns the error for an entry that its owner refuses with invalid_input.
func (e *entry) refused(err error) error {
	var path []string
	if t, ok := errors.AsType[*jsonx.TypeError](err); ok {
		path = strings.Split(strings.TrimPrefix(t.Pointer, "/"), "/")
	}
	return e.fault(path, "%s %s: %s", e.kind, e.name, capability.AsError(err).Message)
}

func fault(file string, line int, format string, args ...any) error {
	at := file
	if line > 0 {
		at += ":" + strconv.Itoa(line)
	}
	return capability.Errorf(capability.CodeInvalidInput, "declared", "%s: %s", at, fmt.Sprintf(format, args...)).
		With(ReasonFault, "correct the file; no object was changed")
}

// decode returns the declarations of files in the order of kind and name. Every error names a file,
// and the line if it is known. Errors: invalid_input, reason declaration_fault.
func decode(files []hostfs.File) ([]entry, error) {
	found := make(map[string]entry)
	size := 0
	for _, f := range files {
		list, err := decodeFile(f, &size)
		if err != nil {
			return nil, err
		}
		for _, e := range list {
			if first, twice := found[e.key()]; twice {
				return nil, fault(e.file, e.line, "the %s %s is declared twice, first in %s:%d", e.kind, e.name, first.file, first.line)
			}
			if found[e.key()] = e; len(found) > maxEntries {
				return nil, fault(e.file, e.line, "the files declare more than %d objects", maxEntries)
			}
		}
	}
	entries := make([]entry, 0, len(found))
	for _, key := range slices.Sorted(maps.Keys(found)) {
		entries = append(entries, found[key])
	}
	return entries, nil
}

// decodeFile adds the bytes of the file to size, with what its aliases repeat.
func decodeFile(f hostfs.File, size *int) (list []entry, err error) {
	file := folder + "/" + f.Name
	doc, err := yamljson.ToJSON(f.Text, ReasonFault)
	if err != nil {
		message := capability.AsError(err).Message
		line := 0
		if m := lineOf.FindStringSubmatch(message); m != nil {
			line, _ = strconv.Atoi(m[1])
			message = strings.TrimPrefix(message, m[0])
		}
		return nil, fault(file, line, "%s", message)
	}
	if *size += len(doc); *size > maxBytes {
		return nil, fault(file, 0, "%s", tooMuch)
	}
	lines := yamljson.LinesOf(f.Text)
	var in struct {
		Upstreams map[string]jsonx.Raw `json:"upstreams"`
		Endpoints map[string]jsonx.Raw `json:"endpoints"`
	}
	if err := jsonx.UnmarshalStrict(doc, &in); err != nil {
		path := ""
		if t, ok := errors.AsType[*jsonx.TypeError](err); ok {
			path = strings.TrimPrefix(t.Pointer, "/")
		}
		return nil, fault(file, lines.Line(strings.Split(path, "/")...), "%s; a file has upstreams and endpoints", err)
	}
	for _, of := range []struct {
		kind    string
		objects map[string]jsonx.Raw
	}{{Endpoint, in.Endpoints}, {Upstream, in.Upstreams}} {
		for _, name := range slices.Sorted(maps.Keys(of.objects)) {
			e := entry{kind: of.kind, name: name, file: file, lines: lines, line: lines.Line(of.kind+"s", name)}
			if e.name == "" || len(e.name) > maxName {
				return nil, fault(e.file, e.line, "a name has 1 to %d bytes", maxName)
			}
			if err := e.prepare(of.objects[name]); err != nil {
				return nil, err
			}
			list = append(list, e)
		}
	}
	return list, nil
}

// lineOf matches the line at the beginning of an error about YAML.
var lineOf = regexp.MustCompile(`^(?:yaml: )?line ([0-9]{1,7}): `)

// prepare checks a declaration for credentials, and sets e.spec, in which the short forms of files
// are written as the owner reads them.
func (e *entry) prepare(raw jsonx.Raw) error {
	var members map[string]jsonx.Raw
	if err := jsonx.Unmarshal(raw, &members); err != nil || members == nil {
		return e.fault(nil, "%s %s has no members", e.kind, e.name)
	}
	var values map[string]any
	if err := jsonx.Unmarshal(raw, &values); err != nil {
		return e.fault(nil, "%s %s: %s", e.kind, e.name, err)
	}
	if err := e.credentials(nil, values); err != nil {
		return err
	}
	if e.kind == Upstream {
		if err := e.shortForms(members); err != nil {
			return err
		}
	}
	var err error
	if e.spec, err = jsonx.Marshal(members); err != nil {
		return e.fault(nil, "%s %s: %s", e.kind, e.name, err)
	}
	return nil
}

var secretName = regexp.MustCompile(`^[A-Za-z0-9._-]{1,120}$`)

// credentials returns an error for a value that looks like a credential, which it never contains,
// and for the name of a secret that is not a name.
func (e *entry) credentials(path []string, value any) error {
	switch v := value.(type) {
	case map[string]any:
		if len(path) == 2 && path[0] == "keys" && (v["d"] != nil || v["k"] != nil) {
			return e.fault(path, "%s %s: a key of a card is a public one, and this is not", e.kind, e.name)
		}
		for _, name := range slices.Sorted(maps.Keys(v)) {
			if err := e.credentials(append(slices.Clone(path), name), v[name]); err != nil {
				return err
			}
		}
	case []any:
		for i, one := range v {
			if err := e.credentials(append(slices.Clone(path), strconv.Itoa(i)), one); err != nil {
				return err
			}
		}
	case string:
		where := strings.Join(path, ".")
		last := path[len(path)-1]
		names := strings.HasSuffix(path[0], "_secrets") || (len(path) == 1 || path[0] == "oauth") && strings.HasSuffix(last, "_secret")
		if names && (!secretName.MatchString(v) || len(secret.FindTokens(v)) > 0) {
			return e.fault(path, "%s %s: %s needs the name of a secret, not its value; store the value with: junctor secrets set NAME",
				e.kind, e.name, where)
		}
		if !names && holdsCredential(path, v) {
			return e.fault(path, "%s %s: %s looks like a credential, which a file must not hold; store it with: junctor secrets set NAME, "+
				"and write the name (%s)", e.kind, e.name, where, byName(path[0]))
		}
	}
	return nil
}

// holdsCredential reports whether a value at path looks like a credential. Names count where they
// are those of variables and headers, and in words such as --token=VALUE.
func holdsCredential(path []string, value string) bool {
	name := ""
	switch path[0] {
	case "env", "headers", "token":
		name = path[len(path)-1]
	case "command", "args":
		if option, rest, ok := strings.Cut(value, "="); ok && strings.HasPrefix(option, "-") {
			name, value = strings.TrimLeft(option, "-"), rest
		}
	}
	return secret.IsCredential(name, value)
}

// byName returns the member that names a secret in place of one that holds a value.
func byName(member string) string {
	switch member {
	case "env", "command", "args":
		return "env_secrets"
	case "headers":
		return "header_secrets"
	case "token":
		return "token_secret"
	}
	return "bearer_secret, env_secrets or header_secrets"
}

// shortForms replaces the members of an upstream that only files have.
func (e *entry) shortForms(members map[string]jsonx.Raw) error {
	bad := func(member, format string, args ...any) error {
		return e.fault([]string{member}, "%s %s: %s", e.kind, e.name, member+" "+fmt.Sprintf(format, args...))
	}
	set := func(member string, value any) (err error) {
		members[member], err = jsonx.Marshal(value)
		return err
	}
	if members["preset"] != nil {
		return bad("preset", "is a rule, and rules are files of their own in policy/: junctor policy set %s PRESET", e.name)
	}
	for _, member := range []string{"name", "managed"} {
		if members[member] != nil {
			return bad(member, "is not a known field")
		}
	}
	command, args := members["command"], members["args"]
	switch {
	case command.Kind() == '"':
		var program string
		var words []string
		if err := jsonx.Unmarshal(command, &program); err != nil {
			return bad("command", "is not text")
		}
		if args != nil && jsonx.Unmarshal(args, &words) != nil {
			return bad("args", "is a list of texts; numbers need quotes")
		}
		if err := set("command", append([]string{program}, words...)); err != nil {
			return err
		}
	case args != nil:
		return bad("args", "needs a command, which is one word beside it")
	}
	delete(members, "args")
	if raw := members["folders"]; raw != nil {
		var folders struct {
			RO []string `json:"ro"`
			RW []string `json:"rw"`
		}
		if err := jsonx.UnmarshalStrict(raw, &folders); err != nil {
			return bad("folders", "has the lists ro and rw: %s", err)
		}
		for member, list := range map[string][]string{"read_only": folders.RO, "read_write": folders.RW} {
			if members[member] != nil {
				return bad("folders", "is given twice, beside %s", member)
			}
			if len(list) > 0 {
				if err := set(member, list); err != nil {
					return err
				}
			}
		}
		delete(members, "folders")
	}
	if network := members["network"]; network.Kind() == '"' {
		members["network"] = slices.Concat(jsonx.Raw("["), network, jsonx.Raw("]"))
	}
	if hints := members["trust_hints"]; hints != nil {
		if members["hints_trusted"] != nil {
			return bad("trust_hints", "is given twice, beside hints_trusted")
		}
		members["hints_trusted"] = hints
		delete(members, "trust_hints")
	}
	return nil
}
