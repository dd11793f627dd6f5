package payload_test

import (
	"crypto/ed25519"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

const limit = 1 << 20

// with is a payload whose members are others; nil takes one away.
func with(members map[string]any) json.RawMessage {
	m := map[string]any{
		"schema": payload.Schema, "version": "1.0", "skill_name": "s",
		"capabilities": []any{map[string]any{"alias": "a", "function_name": "f.a"}},
	}
	for k, v := range members {
		if m[k] = v; v == nil {
			delete(m, k)
		}
	}
	raw, err := jsonx.Marshal(m)
	if err != nil {
		panic(err)
	}
	return raw
}

func entry(members map[string]any) json.RawMessage {
	m := map[string]any{"alias": "a", "function_name": "f"}
	for k, v := range members {
		m[k] = v
	}
	return with(map[string]any{"capabilities": []any{m}})
}

func reason(err error) string {
	if e := capability.AsError(err); e != nil {
		return e.Reason
	}
	return ""
}

// Scenario 13: however it is wrapped, it is the same payload.
func TestScenario13PayloadAsTextAndBytes(t *testing.T) {
	t.Parallel()
	object := with(nil)
	text, _ := jsonx.Marshal(string(object))
	want, _ := payload.Digest(object)
	for name, in := range map[string]json.RawMessage{"object": object, "text": text, "bytes": cmp.BytesValue(object)} {
		p, err := payload.Decode(in, limit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if got, _ := payload.Digest(p.Raw); got != want {
			t.Errorf("%s: another digest; want got = %v", name, want)
		}
	}
	for _, in := range []string{`[]`, `7`, `"{"`, `{`, `null`, ``, `"[]"`, `{"$bytes":"!"}`, `{"a":1,"a":2}`, "\"\xff\"", `"\"{}\""`} {
		if _, err := payload.Decode(json.RawMessage(in), limit); reason(err) != cmp.ReasonPayload {
			t.Errorf("%s: %v; want reason(err) = cmp.ReasonPayload", in, err)
		}
	}
}

// Scenario 14: each wrong payload has its code.
func TestScenario14WrongPayloads(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in   json.RawMessage
		want string
	}{
		"no schema":              {with(map[string]any{"schema": nil}), cmp.ReasonPayload},
		"another schema":         {with(map[string]any{"schema": "other"}), cmp.ReasonSchema},
		"schema before version":  {with(map[string]any{"schema": "other", "version": "9.9"}), cmp.ReasonSchema},
		"schema before all else": {with(map[string]any{"schema": "other", "skill_name": 7}), cmp.ReasonSchema},
		"name a number":          {with(map[string]any{"skill_name": 7}), cmp.ReasonPayload},
		"no version":             {with(map[string]any{"version": ""}), cmp.ReasonPayload},
		"version a number":       {with(map[string]any{"version": 1}), cmp.ReasonPayload},
		"version 9.9":            {with(map[string]any{"version": "9.9"}), cmp.ReasonVersion},
		"version 10.0":           {with(map[string]any{"version": "10.0"}), cmp.ReasonVersion},
		"capabilities object":    {with(map[string]any{"capabilities": map[string]any{}}), cmp.ReasonPayload},
		"entry text":             {with(map[string]any{"capabilities": []any{"x"}}), cmp.ReasonPayload},
		"blank alias":            {entry(map[string]any{"alias": "  "}), cmp.ReasonPayload},
		"blank function":         {entry(map[string]any{"function_name": ""}), cmp.ReasonPayload},
		"function wildcard":      {entry(map[string]any{"function_name": "a.>"}), cmp.ReasonPayload},
		"function star":          {entry(map[string]any{"function_name": "a.*"}), cmp.ReasonPayload},
		"blank media type":       {entry(map[string]any{"media_type": " "}), cmp.ReasonPayload},
		"balancing number":       {entry(map[string]any{"load_balancing": 3}), cmp.ReasonPayload},
		"balancing list":         {entry(map[string]any{"load_balancing": []any{}}), cmp.ReasonPayload},
		"metadata list":          {entry(map[string]any{"metadata": []any{}}), cmp.ReasonPayload},
		"timeout negative":       {entry(map[string]any{"timeout": -1}), cmp.ReasonPayload},
		"timeout text":           {entry(map[string]any{"timeout": "1"}), cmp.ReasonPayload},
		"stream text":            {entry(map[string]any{"stream": "maybe"}), cmp.ReasonPayload},
		"effect":                 {entry(map[string]any{"effect": "all"}), cmp.ReasonPayload},
		"consent text":           {entry(map[string]any{"metadata": map[string]any{"requires_user_consent": "perhaps"}}), cmp.ReasonPayload},
		"modules object":         {with(map[string]any{"runtime_modules": map[string]any{}}), cmp.ReasonPayload},
		"skill name":             {with(map[string]any{"skill_name": "../x y"}), cmp.ReasonPayload},
		"duplicate alias": {with(map[string]any{"capabilities": []any{
			map[string]any{"alias": "a", "function_name": "x"},
			map[string]any{"alias": " a", "function_name": "y"},
		}}), cmp.ReasonDuplicateAlias},
		"large": {with(map[string]any{"note": strings.Repeat("x", limit)}), cmp.ReasonTooLarge},
		"deep": {
			with(map[string]any{"note": json.RawMessage(strings.Repeat("[", 200) + strings.Repeat("]", 200))}),
			cmp.ReasonPayload,
		},
		"NUL": {with(map[string]any{"description": "a\x00b"}), cmp.ReasonPayload},
	} {
		if _, err := payload.Decode(c.in, limit); reason(err) != c.want {
			t.Errorf("%s: %v, want %s", name, err, c.want)
		}
	}
	many := make([]any, payload.MaxCapabilities+1)
	for i := range many {
		many[i] = map[string]any{"alias": fmt.Sprint(i), "function_name": "f"}
	}
	if _, err := payload.Decode(with(map[string]any{"capabilities": many}), limit); reason(err) != cmp.ReasonTooLarge {
		t.Errorf("%v; want reason(err) = cmp.ReasonTooLarge", err)
	}
}

func TestDefaults(t *testing.T) {
	t.Parallel()
	p, err := payload.Decode(with(map[string]any{"skill_name": nil, "runtime_modules": nil, "unknown": map[string]any{"k": 1}}), limit)
	if err != nil {
		t.Fatal(err)
	}
	c := p.Capabilities[0]
	if p.SkillName != payload.DefaultName || c.MediaType != "application/json" || string(c.LoadBalancing) != "true" ||
		string(c.Metadata) != "{}" || c.ActionName() != "a" || c.NeedsConsent() {
		t.Errorf(`%+v; want p.SkillName = payload.DefaultName, c.MediaType = "application/json", string(c.LoadBalancing) = `+
			`"true", string(c.Metadata) = "{}", c.ActionName() = "a", not c.NeedsConsent()`, p)
	}
	if !strings.Contains(string(p.Raw), `"unknown":{"k":1}`) {
		t.Error("unknown members are kept")
	}
	meta := map[string]any{
		"device_action": "cam", "tags": []string{" x ", "", "b", "x"}, "requires_user_consent": 1, "languages": []string{"EN_us", "de", "en-US"},
		"runtime_module": "m", "runtime_export": "e",
	}
	p, err = payload.Decode(entry(map[string]any{"metadata": meta, "timeout": 0}), limit)
	if err != nil {
		t.Fatal(err)
	}
	c = p.Capabilities[0]
	b, bound := c.Code()
	if c.ActionName() != "cam" || fmt.Sprint(c.Tags()) != "[b x]" || !c.NeedsConsent() || fmt.Sprint(c.Languages) != "[de en-us]" || !bound ||
		b.ModuleID != "m" || b.Export != "e" || c.Timeout != nil {
		t.Errorf("%+v %v", c, b)
	}
	meta["code_binding"] = map[string]any{"module_id": " other ", "export": ""}
	p, _ = payload.Decode(entry(map[string]any{"metadata": meta, "languages": []string{"fr"}}), limit)
	if b, bound := p.Capabilities[0].Code(); !bound || b.ModuleID != "other" || b.Export != "" ||
		fmt.Sprint(p.Capabilities[0].Languages) != "[fr]" {
		t.Errorf(`%+v; want bound = true, b.ModuleID = "other", b.Export = "", fmt.Sprint(p.Capabilities[0].Languages) = "[fr]"`, b)
	}
}

func module(source string, more map[string]any) map[string]any {
	m := map[string]any{"module_id": "m", "language": " Python ", "source": source}
	for k, v := range more {
		m[k] = v
	}
	return m
}

// Scenario 15: the guard rails of code.
func TestScenario15GuardRails(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("x = 1"))
	right := hex.EncodeToString(sum[:])
	many := make([]any, 9)
	for i := range many {
		many[i] = module("x", map[string]any{"module_id": fmt.Sprint(i)})
	}
	five := make([]any, 5)
	for i := range five {
		five[i] = module(strings.Repeat("x", 160_001), map[string]any{"module_id": fmt.Sprint(i)})
	}
	for name, c := range map[string]struct {
		modules []any
		limits  cmp.Limits
		want    string
	}{
		"right":           {[]any{module("x = 1", map[string]any{"sha256": right})}, cmp.DefaultLimits(), ""},
		"no hash":         {[]any{module("x = 1", nil)}, cmp.DefaultLimits(), ""},
		"hash wrong":      {[]any{module("x = 2", map[string]any{"sha256": right})}, cmp.DefaultLimits(), cmp.ReasonDigest},
		"hash upper case": {[]any{module("x = 1", map[string]any{"sha256": strings.ToUpper(right)})}, cmp.DefaultLimits(), cmp.ReasonDigest},
		"nine":            {many, cmp.DefaultLimits(), cmp.ReasonCodeTooLarge},
		"200000":          {[]any{module(strings.Repeat("x", 200_000), nil)}, cmp.DefaultLimits(), ""},
		"200001":          {[]any{module(strings.Repeat("x", 200_001), nil)}, cmp.DefaultLimits(), cmp.ReasonCodeTooLarge},
		"total":           {five, cmp.DefaultLimits(), cmp.ReasonCodeTooLarge},
		"zero is none":    {[]any{module("x", nil)}, cmp.Limits{}, cmp.ReasonCodeTooLarge},
		"blank":           {[]any{module("  ", nil)}, cmp.DefaultLimits(), cmp.ReasonPayload},
		"no id":           {[]any{module("x", map[string]any{"module_id": " "})}, cmp.DefaultLimits(), cmp.ReasonPayload},
		"twice":           {[]any{module("x", nil), module("y", nil)}, cmp.DefaultLimits(), cmp.ReasonPayload},
		"two ways":        {[]any{module("x", map[string]any{"source_base64": "eA=="})}, cmp.DefaultLimits(), cmp.ReasonPayload},
		"base64 unhashed": {[]any{module("", map[string]any{"source_base64": "eA=="})}, cmp.DefaultLimits(), cmp.ReasonPayload},
		"base64": {[]any{module("", map[string]any{
			"source_base64": base64.StdEncoding.EncodeToString([]byte("x = 1")),
			"sha256":        right,
		})}, cmp.DefaultLimits(), ""},
		"asset": {
			[]any{module("", map[string]any{"asset": map[string]any{"digest": "sha256:" + right, "size": 5}})},
			cmp.DefaultLimits(), "",
		},
		"asset large": {
			[]any{module("", map[string]any{"asset": map[string]any{"digest": "sha256:" + right, "size": 200_001}})},
			cmp.DefaultLimits(), cmp.ReasonCodeTooLarge,
		},
		"asset other hash": {[]any{module("", map[string]any{
			"sha256": strings.Repeat("0", 64),
			"asset":  map[string]any{"digest": "sha256:" + right, "size": 5},
		})}, cmp.DefaultLimits(), cmp.ReasonDigest},
	} {
		p, err := payload.Decode(with(map[string]any{"runtime_modules": c.modules}), limit)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		s, err := p.Sources(c.limits)
		if reason(err) != c.want || c.want == "" && (len(s) != len(c.modules) || s[0].Language != "python") {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
		if name == "asset" {
			if s[0].Fill([]byte("x = 2")) == nil || s[0].Fill([]byte("x")) == nil || s[0].Fill([]byte("x = 1")) != nil {
				t.Error(`an asset's bytes are those referred to; want s[0].Fill([]byte("x = 2")) not nil, ` +
					`s[0].Fill([]byte("x")) not nil, s[0].Fill([]byte("x = 1")) = nil`)
			}
		}
	}
}

func TestDigestAndSignature(t *testing.T) {
	t.Parallel()
	a, _ := payload.Digest(with(map[string]any{"created_at": "yesterday", "x": 1.0}))
	b, _ := payload.Digest(json.RawMessage(` {"x":1e0, "created_at":"now","signature":{}, ` + string(with(nil)[1:])))
	if a == "" || a != b {
		t.Errorf(`%s %s; want a other than "", a = %v`, a, b, b)
	}
	public, private, _ := ed25519.GenerateKey(nil)
	keys := func(id string) ed25519.PublicKey {
		if id == "k" {
			return public
		}
		return nil
	}
	signed, err := payload.Sign(with(map[string]any{"unknown": "kept"}), "k", private)
	if err != nil {
		t.Fatal(err)
	}
	verify := func(raw json.RawMessage) error {
		p, err := payload.Decode(raw, limit)
		if err != nil {
			return err
		}
		return p.Verify(keys)
	}
	if err := verify(signed); err != nil || !strings.Contains(string(signed), "kept") {
		t.Errorf(`%v %s; want no error, string(signed) with "kept"`, err, signed)
	}
	again, _ := payload.Sign(signed, "k", private)
	if err := verify(again); err != nil {
		t.Error(err)
	}
	other, _ := payload.Sign(with(nil), "stranger", private)
	for name, raw := range map[string]json.RawMessage{
		"changed": json.RawMessage(strings.Replace(string(signed), "kept", "lost", 1)), "unsigned": with(nil), "unknown key": other,
		"algorithm": json.RawMessage(strings.Replace(string(signed), "ed25519", "none", 1)),
	} {
		if err := verify(raw); reason(err) != cmp.ReasonDigest {
			t.Errorf("%s: %v; want reason(err) = cmp.ReasonDigest", name, err)
		}
	}
}

// The worked exchange of appendix A, written by hand.
func TestExportIsTheOriginalsForm(t *testing.T) {
	t.Parallel()
	d := payload.Draft{Name: "camera-pack", Namespace: "user"}
	d.Attach(payload.Module{ModuleID: "camera-v1", Source: "\ndef take_photo_impl(): ...\n"})
	err := d.Add(payload.Offer{
		Alias: "take_photo", FunctionName: "camera.take_photo", Languages: []string{"zh-CN", " en_US"}, CodeExport: "take_photo_impl",
		Metadata: map[string]any{"device_action": "camera.take_photo", "tags": []string{"camera"}, "requires_user_consent": true},
	})
	if err != nil {
		t.Fatal(err)
	}
	raw, err := d.Export(time.Date(2026, 11, 20, 15, 17, 19, 81306000, time.UTC))
	if err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256([]byte("def take_photo_impl(): ..."))
	want := `{"schema":"easyremote.remote-skill-pipeline","version":"1.0","skill_name":"camera-pack","namespace":"user",
 "created_at":"2026-11-20T15:17:19.081306+00:00",
 "capabilities":[{"alias":"take_photo","function_name":"user.camera.take_photo","node_id":null,"timeout":null,
   "stream":false,"load_balancing":true,"media_type":"application/json","codec":null,"languages":["en-us","zh-cn"],
   "metadata":{"device_action":"camera.take_photo","tags":["camera"],"requires_user_consent":true,
     "languages":["en-us","zh-cn"],"code_binding":{"module_id":"camera-v1","export":"take_photo_impl"}},
   "gateway_address":null}],
 "runtime_modules":[{"module_id":"camera-v1","language":"python","source":"def take_photo_impl(): ...","sha256":"` + hex.EncodeToString(sum[:]) + `"}]}`
	var got, expected any
	if json.Unmarshal(raw, &got) != nil || json.Unmarshal([]byte(want), &expected) != nil {
		t.Fatal("no JSON; want json.Unmarshal(raw, &got) = nil, json.Unmarshal([]byte(want), &expected) = nil")
	}
	if diff := gocmp.Diff(expected, got); diff != "" {
		t.Errorf("diff (-want +got):\n%s", diff)
	}
}

func TestShortcuts(t *testing.T) {
	t.Parallel()
	no := false
	d := payload.Draft{Namespace: "ns"}
	for _, err := range []error{
		d.AddVoice(payload.Offer{Alias: "z", Channels: 2, Stream: &no, MediaType: "x/y"}),
		d.AddMedia(payload.Offer{Alias: "m", FunctionName: "ns.m", MediaType: "video/raw"}),
		d.AddMedia(payload.Offer{Alias: "still", MediaType: "image/png", Stream: &no}),
		d.Add(payload.Offer{Alias: "a", LoadBalancing: "rr", Timeout: 1500 * time.Millisecond}),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for name, err := range map[string]error{
		"no media type": d.AddMedia(payload.Offer{Alias: "q"}), "alias twice": d.Add(payload.Offer{Alias: "a"}),
		"no module": d.Add(payload.Offer{Alias: "c", CodeExport: "e"}),
		"balancing": d.Add(payload.Offer{Alias: "l", LoadBalancing: 3}), "name": d.Add(payload.Offer{Alias: "n", FunctionName: "a b"}),
	} {
		if err == nil {
			t.Errorf("err = nil, want an error; name = %q", name)
		}
	}
	raw, err := d.Export(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	p, err := payload.Decode(raw, limit)
	if err != nil || len(p.Capabilities) != 4 || p.Capabilities[0].Alias != "a" {
		t.Fatalf(`err = %v, want nil; p = %+v, want len(p.Capabilities) = 4 and p.Capabilities[0].Alias = "a"`, err, p)
	}
	v, _ := p.Capability("z")
	m, _ := p.Capability("m")
	s, _ := p.Capability("still")
	a, _ := p.Capability("a")
	if !v.Stream || v.MediaType != "audio/raw" || *v.Codec != "pcm16" || string(v.Metadata) != `{"channels":2,"sample_rate_hz":16000}` ||
		!m.Stream || m.FunctionName != "ns.m" || s.Stream || *a.Timeout != 1.5 || a.FunctionName != "ns.a" {
		t.Errorf("%+v\n%+v\n%+v\n%+v", v, m, s, a)
	}
}

// Scenario 57: whatever comes, it is refused or fits every rule.
func FuzzScenario57Decode(f *testing.F) {
	f.Add([]byte(with(nil)))
	f.Add([]byte(entry(map[string]any{
		"metadata":       map[string]any{"code_binding": map[string]any{"module_id": "m", "export": "e"}},
		"load_balancing": map[string]any{"strategy": "rr"},
	})))
	f.Add([]byte(with(map[string]any{"runtime_modules": []any{module("x", nil)}})))
	f.Add([]byte(`"{\"schema\":\"easyremote.remote-skill-pipeline\",\"version\":\"1.0\"}"`))
	f.Add([]byte(strings.Repeat(`{"a":`, 100)))
	f.Add([]byte(`{"schema":"easyremote.remote-skill-pipeline","version":"1.0","capabilities":[{"alias":"\u0000","function_name":">"}]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		p, err := payload.Decode(data, 64<<10)
		if err != nil {
			if e := capability.AsError(err); e.Code != capability.CodeInvalidInput && e.Code != capability.CodeTooLarge {
				t.Fatalf("%q: %+v; want not (e.Code != capability.CodeInvalidInput && e.Code != capability.CodeTooLarge)", data, e)
			}
			return
		}
		if _, err := payload.Digest(p.Raw); err != nil {
			t.Fatalf("%q: no digest: %v", data, err)
		}
		for _, c := range p.Capabilities {
			if cmp.CheckFunction(c.FunctionName) != nil || cmp.CheckAlias(c.Alias) != nil || c.ActionName() == "" {
				t.Fatalf("%q: %+v; want cmp.CheckFunction(c.FunctionName) = nil, cmp.CheckAlias(c.Alias) = nil, c.ActionName() "+
					`other than ""`, data, c)
			}
			c.Code()
		}
		_, _ = p.Sources(cmp.DefaultLimits())
	})
}

// TestTextsForTheOwnerAreOneLine holds that a skill cannot forge lines of the question to the device's owner.
func TestTextsForTheOwnerAreOneLine(t *testing.T) {
	t.Parallel()
	module := func(member, text string) json.RawMessage {
		return with(map[string]any{"runtime_modules": []any{map[string]any{"module_id": "m", "source": "x", member: text}}})
	}
	for name, of := range map[string]func(string) json.RawMessage{
		"publisher":   func(s string) json.RawMessage { return with(map[string]any{"publisher": s}) },
		"permissions": func(s string) json.RawMessage { return with(map[string]any{"permissions": []string{"fine", s}}) },
		"module_id":   func(s string) json.RawMessage { return module("module_id", s) },
		"language":    func(s string) json.RawMessage { return module("language", s) },
	} {
		for _, text := range []string{"a\nb", "a\rb", "a\x1b[2Kb", "a\u202eb", "a\u200bb", "a\u2028b", strings.Repeat("x", 201)} {
			if _, err := payload.Decode(of(text), limit); reason(err) != cmp.ReasonPayload {
				t.Errorf("Decode(%s %.20q) = %v, want reason %s", name, text, err, cmp.ReasonPayload)
			}
		}
		if _, err := payload.Decode(of("Ünïcode, ルビー ✓"), limit); err != nil {
			t.Errorf("Decode(%s of printable text) = %v, want no error", name, err)
		}
	}
}
