package main

import (
	"bytes"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/yamljson"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

// skillFiles returns the file names that declare a skill, in order of preference.
func skillFiles() []string { return []string{"skill.md", "SKILL.md"} }

// skillHeader is the front matter of skill.md. Unknown members cause a warning.
type skillHeader struct {
	Name           string                     `json:"name"`
	Namespace      string                     `json:"namespace"`
	GatewayAddress string                     `json:"gateway_address"`
	RuntimeModule  string                     `json:"runtime_module"`
	ModuleID       string                     `json:"module_id"`
	Capabilities   map[string]json.RawMessage `json:"capabilities"`

	Description string `json:"description"`
	Version     string `json:"version"`
	Publisher   string `json:"publisher"`
}

// skillCapability is one capability.
type skillCapability struct {
	Type          string                     `json:"type"` // remote (default), media, voice
	FunctionName  string                     `json:"function_name"`
	Languages     json.RawMessage            `json:"languages"` // a list, or text with commas
	CodeExport    string                     `json:"code_export"`
	NodeID        string                     `json:"node_id"`
	Timeout       float64                    `json:"timeout"` // seconds
	LoadBalancing json.RawMessage            `json:"load_balancing"`
	Metadata      map[string]json.RawMessage `json:"metadata"`
	Stream        json.RawMessage            `json:"stream"`
	MediaType     string                     `json:"media_type"`
	Codec         string                     `json:"codec"`
	SampleRate    int                        `json:"sample_rate_hz"`
	Channels      int                        `json:"channels"`
	Description   string                     `json:"description"`
	Effect        string                     `json:"effect"`
}

// readSkillDir returns the payload of a skill's directory: a skill.md whose front matter
// declares the skill, and an optional file of code. dir is an [os.Root.FS], so that no
// name and no link leads out of it. warnings name what was left out. The error is
// not_found without a skill.md, and invalid_payload for any defect.
func readSkillDir(dir fs.FS, now time.Time) (raw json.RawMessage, warnings []string, err error) {
	text, err := skillDeclaration(dir)
	if err != nil {
		return nil, nil, err
	}
	doc, err := frontMatter(text)
	if err != nil {
		return nil, nil, err
	}
	var f skillHeader
	if warnings, err = decodeMapping(doc, &f, ""); err != nil {
		return nil, nil, err
	}
	d := payload.Draft{
		Name: f.Name, Namespace: f.Namespace, GatewayAddress: f.GatewayAddress, SkillVersion: f.Version,
		Description: f.Description, Publisher: f.Publisher,
	}
	if f.RuntimeModule != "" {
		m, err := skillModule(dir, f.RuntimeModule, f.ModuleID)
		if err != nil {
			return nil, nil, err
		}
		d.Attach(m)
	}
	for _, alias := range slices.Sorted(maps.Keys(f.Capabilities)) {
		of := f.Capabilities[alias]
		if of[0] != '{' {
			warnings = append(warnings, fmt.Sprintf("capabilities.%s is not a mapping and was left out", alias))
			continue
		}
		more, err := addSkillCapability(&d, alias, of)
		if err != nil {
			return nil, nil, err
		}
		warnings = append(warnings, more...)
	}
	raw, err = d.Export(now)
	return raw, warnings, err
}

func invalidSkill(format string, args ...any) error {
	return cmp.Errorf(cmp.ReasonPayload, format, args...)
}

func skillDeclaration(dir fs.FS) ([]byte, error) {
	for _, name := range skillFiles() {
		data, err := skillFile(dir, name, yamljson.MaxBytes)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		return data, err
	}
	return nil, capability.Errorf(capability.CodeNotFound, "skill", "the directory has no skill.md").With("skill_not_found",
		"a skill's directory holds a skill.md with front matter")
}

// skillFile reads a regular file of at most limit bytes.
func skillFile(dir fs.FS, name string, limit int) ([]byte, error) {
	info, err := fs.Stat(dir, name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, err
	case err != nil || !info.Mode().IsRegular():
		return nil, invalidSkill("%.200q is not a regular file in the skill's directory", name)
	case info.Size() > int64(limit):
		return nil, cmp.Errorf(cmp.ReasonTooLarge, "%.200q has %d bytes; the limit is %d", name, info.Size(), limit)
	}
	data, err := fs.ReadFile(dir, name)
	if err != nil || len(data) > limit {
		return nil, invalidSkill("%.200q cannot be read", name)
	}
	return data, nil
}

// frontMatter returns the front matter of a document as JSON.
func frontMatter(text []byte) ([]byte, error) {
	text = bytes.TrimPrefix(bytes.ReplaceAll(text, []byte("\r\n"), []byte("\n")), []byte("\uFEFF"))
	rest, ok := bytes.CutPrefix(text, []byte("---\n"))
	if !ok {
		return nil, invalidSkill("skill.md does not begin with front matter, which stands between two lines of ---")
	}
	yaml, _, ok := bytes.Cut(append([]byte("\n"), rest...), []byte("\n---"))
	if !ok {
		return nil, invalidSkill("the front matter of skill.md has no end: a line of ---")
	}
	doc, err := yamljson.ToJSON(yaml, cmp.ReasonPayload)
	if err != nil {
		return nil, err
	}
	if doc[0] != '{' {
		return nil, invalidSkill("the front matter of skill.md is not a mapping")
	}
	return doc, nil
}

// decodeMapping decodes a mapping into v. warnings name the keys that v does not have.
func decodeMapping[T any](doc []byte, v *T, at string) (warnings []string, err error) {
	if err := jsonx.Unmarshal(doc, v); err != nil {
		return nil, invalidSkill("skill.md, %s: %w", strings.TrimPrefix(at+" front matter", " "), err)
	}
	var given, known map[string]json.RawMessage
	names, err := jsonx.Marshal(new(T))
	if err == nil {
		err = errors.Join(jsonx.Unmarshal(names, &known), jsonx.Unmarshal(doc, &given))
	}
	if err != nil {
		return nil, invalidSkill("skill.md: %w", err)
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if _, ok := known[name]; !ok {
			warnings = append(warnings, strings.TrimPrefix(at+"."+name, ".")+" is not known and was left out")
		}
	}
	return warnings, nil
}

// addSkillCapability decodes one capability of the front matter and adds it to the draft. warnings
// name unknown members.
func addSkillCapability(d *payload.Draft, alias string, doc []byte) (warnings []string, err error) {
	var c skillCapability
	if warnings, err = decodeMapping(doc, &c, "capabilities."+alias); err != nil {
		return nil, err
	}
	o := payload.Offer{
		Alias: alias, FunctionName: c.FunctionName, NodeID: c.NodeID, MediaType: c.MediaType, Codec: c.Codec, CodeExport: c.CodeExport,
		Timeout: time.Duration(min(max(c.Timeout, 0), 1e6) * float64(time.Second)), SampleRate: c.SampleRate, Channels: c.Channels,
		Description: c.Description, Effect: c.Effect, Metadata: make(map[string]any, len(c.Metadata)),
	}
	if c.Timeout < 0 {
		return nil, invalidSkill("capabilities.%s: timeout must not be negative", alias)
	}
	if c.Stream != nil && string(c.Stream) != "null" {
		stream, err := cmp.Bool(boolWord(c.Stream), "capabilities."+alias+".stream", false)
		if err != nil {
			return nil, invalidSkill("%s", capability.AsError(err).Message)
		}
		o.Stream = &stream
	}
	if c.LoadBalancing != nil && string(c.LoadBalancing) != "null" {
		o.LoadBalancing = boolWord(c.LoadBalancing)
	}
	for key, v := range c.Metadata {
		if key == "requires_user_consent" || key == "consent_every_call" {
			v = boolWord(v)
		}
		o.Metadata[key] = v
	}
	if o.Languages, err = skillLanguages(c.Languages); err != nil {
		return nil, invalidSkill("capabilities.%s: languages must be a list, or text with commas", alias)
	}
	switch c.Type {
	case "", "remote":
		return warnings, d.Add(o)
	case "media":
		if o.MediaType == "" {
			o.MediaType = "application/octet-stream"
		}
		return warnings, d.AddMedia(o)
	case "voice":
		return warnings, d.AddVoice(o)
	}
	return nil, invalidSkill("capabilities.%s: the type %.40q is not remote, media or voice", alias, c.Type)
}

// boolWord converts the words yes, no, on and off of older YAML to JSON booleans.
func boolWord(v json.RawMessage) json.RawMessage {
	switch strings.ToLower(string(v)) {
	case `"yes"`, `"on"`:
		return json.RawMessage("true")
	case `"no"`, `"off"`:
		return json.RawMessage("false")
	}
	return v
}

func skillLanguages(v json.RawMessage) (list []string, err error) {
	if v == nil || string(v) == "null" {
		return nil, nil
	}
	if v[0] == '"' {
		var s string
		err = jsonx.Unmarshal(v, &s)
		return strings.Split(s, ","), err
	}
	return list, jsonx.Unmarshal(v, &list)
}

// skillModule reads the file of code. Its extension selects the language: javascript for .js, wasm
// for .wasm, and python for all others.
func skillModule(dir fs.FS, name, id string) (payload.Module, error) {
	code, err := skillFile(dir, name, cmp.DefaultLimits().ModuleSource)
	if errors.Is(err, fs.ErrNotExist) {
		return payload.Module{}, invalidSkill("the file %.200q of runtime_module is not in the directory", name)
	}
	if err != nil {
		return payload.Module{}, err
	}
	m := payload.Module{ModuleID: id, Language: payload.DefaultLanguage}
	if m.ModuleID == "" {
		m.ModuleID = name
	}
	switch path.Ext(name) {
	case ".wasm":
		sum := sha256.Sum256(code)
		m.Language, m.SourceBase64, m.SHA256 = "wasm", base64.StdEncoding.EncodeToString(code), hex.EncodeToString(sum[:])
		return m, nil
	case ".js":
		m.Language = "javascript"
	}
	if !utf8.Valid(code) {
		return payload.Module{}, invalidSkill("the file %.200q is not UTF-8", name)
	}
	m.Source = string(code)
	return m, nil
}
