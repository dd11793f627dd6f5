package eval

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
)

// File is the content of a scenario file.
type File struct {
	Name string // for errors
	Data []byte
}

// RunFiles evaluates every scenario of the files, in their order, and writes one JSON
// line for each question and order of extensions: {id, index, order, ok, got}. It returns
// false if any answer differs from the expected one. All files are parsed first, so that
// a malformed one is reported before any output. Errors name file, scenario and question.
func RunFiles(fixtures Fixtures, files []File, w io.Writer) (ok bool, err error) {
	packs := make([][]Scenario, len(files))
	for i, f := range files {
		if packs[i], err = Parse(f.Data); err != nil {
			return false, fmt.Errorf("%s: %w", f.Name, err)
		}
	}
	ok = true
	lines := json.NewEncoder(w)
	lines.SetEscapeHTML(false)
	for i, pack := range packs {
		for _, s := range pack {
			var broken error
			err := Run(fixtures, s, func(o Outcome) {
				ok = ok && o.OK
				if broken == nil {
					broken = lines.Encode(o)
				}
			})
			switch {
			case err != nil:
				return false, fmt.Errorf("%s: %w", files[i].Name, err)
			case broken != nil:
				return false, fmt.Errorf("write the answers: %w", broken)
			}
		}
	}
	return ok, nil
}

// normal returns v encoded to JSON and decoded again.
func normal(v any) any {
	doc, err := json.Marshal(v)
	if err != nil {
		return fmt.Sprint(v)
	}
	var out any
	if err := json.Unmarshal(doc, &out); err != nil {
		return fmt.Sprint(v)
	}
	return out
}

// matches compares an answer with the expected value: objects are subsets, arrays match in length
// and order, a missing key equals null, $contains and $lacks test membership.
func matches(want, got any) bool {
	switch want := want.(type) {
	case map[string]any:
		contains, in := want["$contains"].([]any)
		lacks, out := want["$lacks"].([]any)
		if in || out {
			list, isList := got.([]any)
			if !isList {
				return false
			}
			has := func(item any) bool { return slices.ContainsFunc(list, func(x any) bool { return matches(item, x) }) }
			return !slices.ContainsFunc(contains, func(item any) bool { return !has(item) }) && !slices.ContainsFunc(lacks, has)
		}
		object, ok := got.(map[string]any)
		if !ok {
			return false
		}
		for key, value := range want {
			if !matches(value, object[key]) {
				return false
			}
		}
		return true
	case []any:
		list, ok := got.([]any)
		if !ok || len(list) != len(want) {
			return false
		}
		for i := range want {
			if !matches(want[i], list[i]) {
				return false
			}
		}
		return true
	}
	return want == got
}
