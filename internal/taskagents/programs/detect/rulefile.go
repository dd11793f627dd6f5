package detect

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// BuiltIn is the source of the files that are part of junctor.
const BuiltIn = "built in"

// File holds the rules for one program and a range of its versions. It is immutable.
type File struct {
	Framework programs.Name
	Display   string
	Binary    string // empty: the user's own shell
	Revision  int    // of the file itself
	Min, Max  string // versions it was checked with; either may be empty
	ReadyMS   int    // how long the state ready must last
	Input     Input
	Cursors   string // glyphs that mark the selected option of a dialog
	Footer    bool   // every dialog of this program has a line that states which keys to press
	OneShot   bool   // with its task as argument, it has no input box and ends by itself
	Rules     []*Rule
	Source    string // where it was read from
}

// Input describes how the program draws its input box.
type Input struct {
	Glyphs []string // possible beginnings of its first line; none: any
	Frame  string   // the runes of the lines above and below it; empty if not used
	Below  int      // maximal number of non-blank lines below it
	Echo   []string // possible beginnings of a submitted line in the transcript
}

// Rule is a condition on a region of the screen, and the state that it indicates.
type Rule struct {
	ID       string
	State    string // busy, idle, done, interrupted, blocked, authenticating, failed, error
	Detail   string // text after the colon: kind or phase
	Priority int
	Region   Region

	all, any, not []string // folded
	lines         []*regexp.Regexp
	prompt        *regexp.Regexp
	options       *regexp.Regexp
	url           *regexp.Regexp
	min, max      string
	skipWhen      []string
}

// fileJSON is the JSON form of a rule file.
type fileJSON struct {
	Format    int        `json:"format"`
	Framework string     `json:"framework"`
	Display   string     `json:"display"`
	Binary    string     `json:"binary"`
	Revision  int        `json:"revision"`
	Versions  rangeJSON  `json:"versions"`
	ReadyMS   int        `json:"readySettleMs"`
	Input     inputJSON  `json:"input"`
	Cursors   string     `json:"cursors"`
	Footer    bool       `json:"dialogsHaveFooter"`
	OneShot   bool       `json:"oneShot"`
	Rules     []ruleJSON `json:"rules"`
}

type rangeJSON struct {
	Min string `json:"min"`
	Max string `json:"max"`
}

type inputJSON struct {
	Glyphs []string `json:"glyphs"`
	Frame  string   `json:"frame"`
	Below  int      `json:"below"`
	Echo   []string `json:"echo"`
}

type ruleJSON struct {
	ID        string      `json:"id"`
	State     string      `json:"state"`
	Priority  int         `json:"priority"`
	Region    string      `json:"region"`
	All       []string    `json:"all"`
	Any       []string    `json:"any"`
	Not       []string    `json:"not"`
	LineRegex []string    `json:"lineRegex"`
	Extract   extractJSON `json:"extract"`
	Min       string      `json:"minVersion"`
	Max       string      `json:"maxVersion"`
	SkipWhen  []string    `json:"skipWhen"`
}

type extractJSON struct {
	Prompt  string `json:"prompt"`
	Options string `json:"options"`
	URL     string `json:"url"`
}

// Load reads the rule files of a folder and those that are part of junctor. The folder's files
// come first and win for the same program. An empty name or a missing folder adds nothing. Any
// fault in a file is an error that names file, rule and field.
func Load(folder string) ([]*File, error) {
	files, err := readAll(programs.Rules(), BuiltIn)
	if err != nil || folder == "" {
		return files, err
	}
	if _, err := os.Stat(folder); os.IsNotExist(err) {
		return files, nil
	}
	theirs, err := readAll(os.DirFS(folder), folder)
	return append(theirs, files...), err
}

func readAll(from fs.FS, source string) ([]*File, error) {
	entries, err := fs.ReadDir(from, ".")
	if err != nil {
		return nil, capability.Wrap(capability.CodeInvalidInput, "framework.rules", "the folder of rule files cannot be read", err)
	}
	var files []*File
	for _, e := range entries {
		if path.Ext(e.Name()) != ".json" {
			continue
		}
		if len(files) == maxFiles {
			return nil, capability.Errorf(capability.CodeTooLarge, "framework.rules", "there are more than %d rule files", maxFiles)
		}
		if info, err := e.Info(); err != nil || info.Size() > maxFile {
			return nil, capability.Errorf(capability.CodeTooLarge, "framework.rules", "rule file %s has more than %d KiB", e.Name(), maxFile>>10)
		}
		data, err := fs.ReadFile(from, e.Name())
		if err != nil {
			return nil, capability.Wrap(capability.CodeInvalidInput, "framework.rules", "rule file "+e.Name()+" cannot be read", err)
		}
		f, err := Read(e.Name(), data)
		if err != nil {
			return nil, err
		}
		f.Source = source
		files = append(files, f)
	}
	return files, nil
}

// Read parses and validates one rule file. name is for errors.
func Read(name string, data []byte) (*File, error) {
	fault := func(where, format string, args ...any) error {
		return capability.Errorf(capability.CodeInvalidInput, "framework.rules", "rule file %s: %s%s", name, where, fmt.Sprintf(format, args...))
	}
	if len(data) > maxFile {
		return nil, fault("", "it has more than %d KiB", maxFile>>10)
	}
	var j fileJSON
	if err := jsonx.UnmarshalStrict(data, &j); err != nil {
		return nil, fault("", "%s", err.Error())
	}
	known, ok := programs.Normalise(j.Framework)
	switch {
	case j.Format != format:
		return nil, fault("", `"format" is %d and must be %d`, j.Format, format)
	case !ok || string(known) != j.Framework:
		return nil, fault("", `"framework" is %q, which is not a canonical name`, j.Framework)
	case j.Revision < 1:
		return nil, fault("", `"revision" must be 1 or more`)
	case j.ReadyMS < 0 || j.ReadyMS > 60_000:
		return nil, fault("", `"readySettleMs" must be from 0 to 60000`)
	case !validVersion(j.Versions.Min) || !validVersion(j.Versions.Max):
		return nil, fault("", `"versions" must be numbers with dots between`)
	case len(j.Rules) > maxRules:
		return nil, fault("", "it has more than %d rules", maxRules)
	case j.Input.Below < 0 || j.Input.Below > 30:
		return nil, fault("", `"input.below" must be from 0 to 30`)
	}
	for field, list := range map[string][]string{
		"input.glyphs": j.Input.Glyphs, "input.echo": j.Input.Echo, "input.frame": {j.Input.Frame},
		"cursors": {j.Cursors}, "display": {j.Display}, "binary": {j.Binary},
	} {
		if complaint := badList(list); complaint != "" && list[0] != "" {
			return nil, fault("", "%q %s", field, complaint)
		}
	}
	f := &File{
		Framework: known, Display: j.Display, Binary: j.Binary, Revision: j.Revision, Min: j.Versions.Min, Max: j.Versions.Max,
		ReadyMS: j.ReadyMS, Input: Input(j.Input), Cursors: j.Cursors, Footer: j.Footer, OneShot: j.OneShot, Source: name,
	}
	seen := map[string]bool{}
	for i := range j.Rules {
		r, field, complaint := compile(&j.Rules[i])
		if complaint == "" && seen[r.ID] {
			field, complaint = "id", "is used twice"
		}
		if complaint != "" {
			return nil, fault(fmt.Sprintf("rule %q (number %d): ", j.Rules[i].ID, i+1), "%q %s", field, complaint)
		}
		seen[r.ID] = true
		f.Rules = append(f.Rules, r)
	}
	for _, r := range f.Rules {
		for _, other := range r.skipWhen {
			if !seen[other] || other == r.ID {
				return nil, fault(fmt.Sprintf("rule %q: ", r.ID), `"skipWhen" names %q, which is no other rule of the file`, other)
			}
		}
	}
	slices.SortStableFunc(f.Rules, func(a, b *Rule) int { return b.Priority - a.Priority })
	return f, nil
}

// states returns the states that rules may indicate, with their allowed details: nil means no
// detail, and an empty list means that any word is required.
func states() map[string][]string {
	return map[string][]string{
		"idle": nil, "done": nil, "interrupted": nil, "authenticating": nil,
		"busy":    {"", "thinking", "tool", "provider_retry", "compacting"},
		"blocked": {}, "failed": {}, "error": {},
	}
}

// compile validates one rule. complaint is "" if it is valid, otherwise it describes the fault of
// field.
func compile(j *ruleJSON) (r *Rule, field, complaint string) {
	r = &Rule{ID: j.ID, Priority: j.Priority, min: j.Min, max: j.Max, skipWhen: j.SkipWhen}
	if j.ID == "" || len(j.ID) > 80 || strings.ContainsAny(j.ID, " \t\n") {
		return r, "id", "must be a word of at most 80 bytes"
	}
	var colon bool
	r.State, r.Detail, colon = strings.Cut(j.State, ":")
	details, ok := states()[r.State]
	switch {
	case !ok:
		return r, "state", fmt.Sprintf("is %q, which is not a state that rules know", j.State)
	case details == nil && colon, len(details) > 0 && !slices.Contains(details, r.Detail):
		return r, "state", fmt.Sprintf("is %q: %s has no such detail", j.State, r.State)
	case details != nil && len(details) == 0 && !isWord(r.Detail):
		return r, "state", fmt.Sprintf("is %q: after %s: belongs a word of lower-case letters", j.State, r.State)
	case j.Priority < 0 || j.Priority > 1000:
		return r, "priority", "must be from 0 to 1000"
	}
	var err error
	if r.Region, err = parseRegion(j.Region); err != nil {
		return r, "region", err.Error()
	}
	if r.Region.Sequence() && (r.State == "error" || r.State == "authenticating") {
		return r, "state", "cannot come from a sequence or a title"
	}
	for field, list := range map[string][]string{"all": j.All, "any": j.Any, "not": j.Not, "lineRegex": j.LineRegex, "skipWhen": j.SkipWhen} {
		if complaint := badList(list); complaint != "" {
			return r, field, complaint
		}
	}
	if len(j.All)+len(j.Any)+len(j.LineRegex) == 0 {
		return r, "all", "is empty, and so are any and lineRegex: the rule would always match"
	}
	r.all, r.any, r.not = foldAll(j.All), foldAll(j.Any), foldAll(j.Not)
	for _, text := range j.LineRegex {
		re, err := regexp.Compile(text)
		if err != nil {
			return r, "lineRegex", "holds " + text + ": " + err.Error()
		}
		r.lines = append(r.lines, re)
	}
	for name, each := range map[string]struct {
		text string
		into **regexp.Regexp
	}{
		"extract.prompt": {j.Extract.Prompt, &r.prompt}, "extract.options": {j.Extract.Options, &r.options},
		"extract.url": {j.Extract.URL, &r.url},
	} {
		if each.text == "" {
			continue
		}
		re, err := regexp.Compile(each.text)
		if err != nil || len(each.text) > maxPattern || re.NumSubexp() != 1 {
			return r, name, "must be a regular expression with one group"
		}
		*each.into = re
	}
	if !validVersion(j.Min) || !validVersion(j.Max) {
		return r, "minVersion", "and maxVersion must be numbers with dots between"
	}
	return r, "", ""
}

func badList(list []string) string {
	if len(list) > maxPatterns {
		return fmt.Sprintf("has more than %d members", maxPatterns)
	}
	for _, s := range list {
		if strings.TrimSpace(s) == "" || len(s) > maxPattern {
			return fmt.Sprintf("has a member that is empty or longer than %d bytes", maxPattern)
		}
	}
	return ""
}

func isWord(s string) bool {
	for _, c := range s {
		if (c < 'a' || c > 'z') && c != '_' {
			return false
		}
	}
	return s != "" && len(s) <= 40
}
