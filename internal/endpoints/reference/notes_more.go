package reference

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// call is the key-value service notes-store.
func (n *notes) call(_ context.Context, p serviceParams) (any, error) {
	if p.Method == "list" {
		return n.storeList(p.Args)
	}
	wanted := map[string]int{"get": 1, "set": 2, "delete": 1}[p.Method]
	if wanted == 0 {
		return nil, unknownServiceMethod(notesID, "notes-store", p.Method)
	}
	if len(p.Args) != wanted {
		return nil, invalid("%s takes %d arguments, not %d", p.Method, wanted, len(p.Args))
	}
	key, ok := p.Args[0].(string)
	if !ok || strings.TrimSpace(key) == "" || len(key) > maxStoreKey {
		return nil, invalid("the key must be a string of 1 to %d bytes", maxStoreKey)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	old, found := n.store[key]
	switch p.Method {
	case "get":
		if !found {
			return nil, capability.Errorf(capability.CodeNotFound, "", "nothing is stored under %q", key)
		}
		return outcome{object{"key": key, "value": old}}, nil
	case "delete":
		delete(n.store, key)
		return outcome{object{"key": key, "deleted": found}}, nil
	}
	if !found && len(n.store) >= maxStoreKeys {
		return nil, capability.Errorf(capability.CodeTooLarge, "", "the store holds at most %d keys", maxStoreKeys)
	}
	if raw, err := jsonx.Marshal(p.Args[1]); err != nil || len(raw) > maxStoreValue {
		return nil, capability.Errorf(capability.CodeTooLarge, "", "a value has at most %d bytes of JSON", maxStoreValue)
	}
	n.store[key] = p.Args[1]
	return outcome{object{"key": key, "replaced": found}}, nil
}

func (n *notes) storeList(args []any) (any, error) {
	if len(args) > 1 {
		return nil, invalid("list takes at most one argument, {prefix}")
	}
	prefix := ""
	if len(args) == 1 && args[0] != nil {
		options, ok := args[0].(map[string]any)
		if !ok {
			return nil, invalid("the argument of list must be an object")
		}
		if v, given := options["prefix"]; given {
			if prefix, ok = v.(string); !ok {
				return nil, invalid("prefix must be a string")
			}
		}
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	keys := []string{}
	for _, k := range slices.Sorted(maps.Keys(n.store)) {
		if strings.HasPrefix(k, prefix) {
			keys = append(keys, k)
		}
	}
	return outcome{object{"keys": keys, "total": len(n.store)}}, nil
}

// extractorParams are those of all four phases.
type extractorParams struct {
	Message struct {
		Text    string `json:"text"`
		Content struct {
			Text string `json:"text"`
		} `json:"content"`
	} `json:"message"`
	Prepared *prepared       `json:"prepared"`
	Output   json.RawMessage `json:"output"`
}

// prepared travels from prepare to prompt and process through the caller.
type prepared struct {
	Known      []string `json:"known"`
	Candidates []string `json:"candidates"`
}

func (p extractorParams) text() string {
	if p.Message.Text != "" {
		return p.Message.Text
	}
	return p.Message.Content.Text
}

// asksToRemember reports whether a sentence wants to be kept.
func asksToRemember(sentence string) bool {
	return slices.ContainsFunc(words(sentence), func(w string) bool {
		return w == "remember" || w == "note" || w == "remind" || w == "forget"
	})
}

func extractorShouldRun(_ context.Context, p extractorParams) (any, error) {
	return object{"shouldRun": slices.ContainsFunc(sentences(p.text()), asksToRemember)}, nil
}

func (n *notes) extractorPrepare(_ context.Context, p extractorParams) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	ready := prepared{Known: []string{}, Candidates: []string{}}
	for _, x := range n.newest(5) {
		ready.Known = append(ready.Known, x.Text)
	}
	for _, s := range sentences(p.text()) {
		if asksToRemember(s) {
			ready.Candidates = append(ready.Candidates, s)
		}
	}
	return object{"prepared": ready}, nil
}

func extractorPrompt(_ context.Context, p extractorParams) (any, error) {
	var b strings.Builder
	b.WriteString(`List every fact the sender asked to remember, as JSON: {"notes": ["..."]}.`)
	if p.Prepared != nil && len(p.Prepared.Known) > 0 {
		b.WriteString("\nKnown already:\n- " + strings.Join(p.Prepared.Known, "\n- "))
	}
	if t := p.text(); t != "" {
		b.WriteString("\nMessage:\n" + t)
	}
	return object{"prompt": b.String()}, nil
}

// extractorProcess stores what the model named. Without usable output
// the candidates of prepare stand in, so that it works without a model.
func (n *notes) extractorProcess(_ context.Context, p extractorParams) (any, error) {
	var output struct {
		Notes []string `json:"notes"`
	}
	if len(p.Output) > 0 {
		// A model may answer anything; what is not a list of notes counts as none.
		_ = jsonx.Unmarshal(p.Output, &output)
	}
	texts := output.Notes
	if len(texts) == 0 && p.Prepared != nil {
		texts = p.Prepared.Candidates
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	stored := []string{}
	for _, text := range texts {
		text = strings.TrimSpace(text)
		known := slices.ContainsFunc(n.list, func(x note) bool { return x.Text == text })
		if text == "" || known {
			continue
		}
		added, err := n.add(text, []string{"extracted"})
		if err != nil {
			return nil, err
		}
		stored = append(stored, added.ID)
	}
	return object{"result": object{"stored": stored, "total": len(n.list)}}, nil
}
