package directive

import (
	"encoding/json"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Proof is an agent's claim that an app or a plugin is done. The caller must check it against
// the files on disk.
type Proof struct {
	Kind   string // app or plugin
	Name   string
	Files  []string
	Passed int // passed tests; a valid proof has no failed ones
	Extra  map[string]json.RawMessage
}

// ReadProof returns the first valid proof of a turn. ok is false if none exists. If all proofs
// are invalid, err is that of the last, with reason proof_invalid.
func ReadProof(t Text) (p Proof, ok bool, err error) {
	all := t.lines()
	for i, ln := range all {
		word, rest, _ := strings.Cut(ln.body, " ")
		kind, is := map[string]string{"APP_CREATE_DONE": "app", "PLUGIN_CREATE_DONE": "plugin"}[word]
		if ln.hidden || !is {
			continue
		}
		if p, err = proof(kind, t.directiveText(all, i, rest)); err == nil {
			return p, true, nil
		}
	}
	return Proof{}, false, err
}

func proof(kind, text string) (p Proof, err error) {
	invalid := func(format string, args ...any) (Proof, error) {
		return Proof{}, capability.Errorf(capability.CodeInvalidInput, "task.proof", "the proof does not count: "+format, args...).
			With("proof_invalid", "end with one line of its own that has appName or pluginName, files, tests, lint and typecheck")
	}
	if len(text) > maxProof {
		return invalid("it is longer than %d bytes", maxProof)
	}
	var members map[string]json.RawMessage
	if err := jsonx.Unmarshal([]byte(text), &members); err != nil || members == nil {
		return invalid("it is not one JSON object")
	}
	own, other := "appName", "pluginName"
	if kind == "plugin" {
		own, other = other, own
	}
	for _, name := range []string{"name", "testsPassed", "lintClean", other} {
		if _, there := members[name]; there {
			return invalid("it must not have the field %s", name)
		}
	}
	p = Proof{Kind: kind}
	var tests struct {
		Passed *int `json:"passed"`
		Failed *int `json:"failed"`
	}
	var lint, types string
	for _, field := range []struct {
		name string
		into any
	}{{own, &p.Name}, {"files", &p.Files}, {"tests", &tests}, {"lint", &lint}, {"typecheck", &types}} {
		raw, there := members[field.name]
		if !there || string(raw) == "null" || jsonx.Unmarshal(raw, field.into) != nil {
			return invalid("%s is missing or has the wrong shape", field.name)
		}
		delete(members, field.name)
	}
	switch {
	case strings.TrimSpace(p.Name) == "":
		return invalid("%s is empty", own)
	case len(p.Files) > MaxProofFiles:
		return invalid("it names more than %d files", MaxProofFiles)
	case tests.Passed == nil || *tests.Passed < 0 || tests.Failed == nil || *tests.Failed != 0:
		return invalid("its tests must have passed, and none failed")
	case lint != "ok" || types != "ok":
		return invalid("lint and typecheck must be ok")
	}
	p.Passed = *tests.Passed
	if len(members) > 0 {
		p.Extra = members
	}
	return p, nil
}
