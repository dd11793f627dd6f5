package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/payload"
)

func openSkillDir(t *testing.T, files map[string]string) fs.FS {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	root, err := os.OpenRoot(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { root.Close() })
	return root.FS()
}

const camera = `---
name: camera-pack
namespace: user
runtime_module: camera.py
module_id: camera-v1
license: MIT
capabilities:
  take_photo:
    function_name: camera.take_photo
    languages: [zh-CN, en-US]
    code_export: take_photo_impl
    load_balancing: off
    metadata:
      device_action: camera.take_photo
      tags: [camera]
      requires_user_consent: yes
      mode: on
  talk:
    type: voice
    languages: de, en
    channels: 2
  watch:
    type: media
    stream: no
    timeout: 2.5
    colour: blue
  nothing: 7
---
# Camera

---
Anything.
`

func TestADirectoryBecomesAPayload(t *testing.T) {
	t.Parallel()
	root := openSkillDir(t, map[string]string{"skill.md": camera, "camera.py": "\ndef take_photo_impl(): ...\n"})
	raw, warnings, err := readSkillDir(root, time.Now())
	if err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(warnings) != "[license is not known and was left out capabilities.nothing is not a mapping and was left out capabilities.watch.colour is not known and was left out]" {
		t.Errorf("warnings = %q, want the three above", warnings)
	}
	p, err := payload.Decode(raw, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	take, _ := p.Capability("take_photo")
	code, _ := take.Code()
	if take.FunctionName != "user.camera.take_photo" || code != (cmp.CodeBinding{ModuleID: "camera-v1", Export: "take_photo_impl"}) ||
		!take.NeedsConsent() || string(take.LoadBalancing) != "false" || !strings.Contains(string(take.Metadata), `"mode":"on"`) ||
		fmt.Sprint(take.Languages) != "[en-us zh-cn]" {
		t.Errorf(`%+v; want take.FunctionName = "user.camera.take_photo", code = (cmp.CodeBinding{ModuleID: "camera-v1", `+
			`Export: "take_photo_impl"}), take.NeedsConsent(), string(take.LoadBalancing) = "false", string(take.Metadata) `+
			`with "\"mode\":\"on\"", fmt.Sprint(take.Languages) = "[en-us zh-cn]"`, take)
	}
	talk, _ := p.Capability("talk")
	watch, _ := p.Capability("watch")
	if !talk.Stream || talk.MediaType != "audio/raw" || !strings.Contains(string(talk.Metadata), `"channels":2`) || watch.Stream ||
		watch.MediaType != "application/octet-stream" || *watch.Timeout != 2.5 || watch.FunctionName != "user.watch" {
		t.Errorf("%+v\n%+v\nwant talk.Stream = true, talk.MediaType = \"audio/raw\", string(talk.Metadata) with \"\\\"channels\\\":2\", "+
			`watch.Stream = false, watch.MediaType = "application/octet-stream", *watch.Timeout = 2.5, watch.FunctionName `+
			`= "user.watch"`, talk, watch)
	}
	if len(p.Modules) != 1 || p.Modules[0].Source != "def take_photo_impl(): ..." || p.Modules[0].Language != "python" ||
		len(p.Capabilities) != 3 {
		t.Errorf(`%+v; want len(p.Modules) = 1, p.Modules[0].Source = "def take_photo_impl(): ...", p.Modules[0].Language = `+
			`"python", len(p.Capabilities) = 3`, p.Modules)
	}
}

func TestLanguagesByTheFilesEnding(t *testing.T) {
	t.Parallel()
	for name, want := range map[string]string{"m.js": "javascript", "m.wasm": "wasm", "m.py": "python", "m": "python"} {
		raw, _, err := readSkillDir(openSkillDir(t, map[string]string{"SKILL.md": "---\nruntime_module: " + name + "\n---\n", name: "code"}),
			time.Now())
		if err != nil {
			t.Fatal(err)
		}
		p, _ := payload.Decode(raw, 1<<20)
		s, err := p.Sources(cmp.DefaultLimits())
		if err != nil || s[0].Language != want || string(s[0].Code) != "code" || s[0].ModuleID != name || p.SkillName != payload.DefaultName {
			t.Errorf(`%s: %+v %v; want no error, s[0].Language = %v, string(s[0].Code) = "code", s[0].ModuleID = %v, `+
				"p.SkillName = payload.DefaultName", name, s, err, want, name)
		}
	}
}

func TestWrongDirectories(t *testing.T) {
	t.Parallel()
	outside := filepath.Join(t.TempDir(), "secret")
	if err := os.WriteFile(outside, []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	md := func(front string) map[string]string {
		return map[string]string{"skill.md": "---\n" + front + "\n---\n"}
	}
	for name, c := range map[string]struct {
		files map[string]string
		code  capability.Code
	}{
		"nothing": {nil, capability.CodeNotFound}, "no front matter": {map[string]string{"skill.md": "# x"}, capability.CodeInvalidInput},
		"no end": {map[string]string{"skill.md": "---\nname: x\n"}, capability.CodeInvalidInput},
		"a list": {md("- x"), capability.CodeInvalidInput}, "empty": {md(""), capability.CodeInvalidInput},
		"twice": {md("name: a\nname: b"), capability.CodeInvalidInput}, "no file": {md("runtime_module: x.py"), capability.CodeInvalidInput},
		"outside":  {md("runtime_module: ../secret"), capability.CodeInvalidInput},
		"absolute": {md("runtime_module: " + outside), capability.CodeInvalidInput},
		"type":     {md("capabilities: {a: {type: smell}}"), capability.CodeInvalidInput},
		"stream":   {md("capabilities: {a: {stream: maybe}}"), capability.CodeInvalidInput},
		"export":   {md("capabilities: {a: {code_export: f}}"), capability.CodeInvalidInput},
		"name":     {md("name: 'a b'"), capability.CodeInvalidInput},
		"timeout":  {md("capabilities: {a: {timeout: -1}}"), capability.CodeInvalidInput},
		"code too large": {
			map[string]string{"skill.md": "---\nruntime_module: m\n---\n", "m": strings.Repeat("x", 200_001)},
			capability.CodeTooLarge,
		},
	} {
		raw, _, err := readSkillDir(openSkillDir(t, c.files), time.Now())
		if capability.CodeOf(err) != c.code {
			t.Errorf("%s: %s %v; want capability.CodeOf(err) = %v", name, raw, err, c.code)
		}
	}
}

func FuzzReadSkillDir(f *testing.F) {
	f.Add([]byte(camera))
	f.Add([]byte("---\ncapabilities: {a: {metadata: {x: [1]}, load_balancing: {strategy: rr}}}\n---\n"))
	f.Add([]byte("---\n---\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		raw, _, err := readSkillDir(fstest.MapFS{"skill.md": {Data: data}, "camera.py": {Data: []byte("x")}}, time.Unix(0, 0))
		if err != nil {
			return
		}
		if _, err := payload.Decode(raw, 1<<20); err != nil {
			t.Fatalf("%q: %v", data, err)
		}
	})
}
