package mcpregistry_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/testkit/fakeregistry"
	"github.com/junctor-run/junctor/internal/upstreams/mcpregistry"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

func client(reg *fakeregistry.Registry, found ...string) *mcpregistry.Client {
	return mcpregistry.New(mcpregistry.Config{
		Base: reg.URL, NPM: reg.URL + "/npm", PyPI: reg.URL + "/simple", HTTP: http.DefaultClient,
		LookPath: func(program string) (string, error) {
			for _, f := range found {
				if f == program {
					return "/bin/" + f, nil
				}
			}
			return "", errors.New("not found")
		},
	})
}

func TestSearchRanksByNameTitleAndDescription(t *testing.T) {
	t.Parallel()
	entries := []fakeregistry.Entry{
		fakeregistry.Package("a.example/files", "1.0.0", "npm", "files", ""),
		fakeregistry.Package("b.example/files-remote", "1.0.0", "npm", "files", ""),
		fakeregistry.Package("c.example/files-nuget", "1.0.0", "nuget", "files", ""),
		{Name: "d.example/files-bad", Server: `{"name":"../../files","version":"1.0.0"}`},
		{Name: "e.example/files-latest", Server: `{"name":"e.example/files-latest","version":"latest"}`},
		{Name: "f.example/files-form", Server: `{"name":7}`},
	}
	gone := fakeregistry.Package("g.example/files-gone", "1.0.0", "npm", "files", "")
	gone.Status = "deleted"
	old := fakeregistry.Package("0.example/files-old", "1.0.0", "npm", "files", "")
	old.Status = "deprecated"
	reg := fakeregistry.Start(t, append(entries, gone, old)...)
	got, err := client(reg).Search(t.Context(), "files remote")
	if err != nil {
		t.Fatalf("searching: %v", err)
	}
	var names []string
	for _, s := range got.Servers {
		names = append(names, s.Name+" "+s.Status+" "+strings.Join(s.Packages, ","))
	}
	want := []string{
		"b.example/files-remote active npm", "a.example/files active npm", "c.example/files-nuget active ", "0.example/files-old deprecated npm",
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("servers (-want +got):\n%s", d)
	}
	if got.Dropped != 4 {
		t.Errorf("dropped = %d, want 4", got.Dropped)
	}
}

func TestSearchReadsPagesWithinItsBounds(t *testing.T) {
	t.Parallel()
	var entries []fakeregistry.Entry
	for i := range 450 {
		entries = append(entries, fakeregistry.Package(fmt.Sprintf("a.example/files-%03d", i), "1.0.0", "npm", "files", ""))
	}
	got, err := client(fakeregistry.Start(t, entries...)).Search(t.Context(), "files")
	if err != nil || len(got.Servers) != 50 || !got.More {
		t.Errorf("Search of 450 entries = %d, more %v, %v; want 50, true, no error", len(got.Servers), got.More, err)
	}
}

func TestARegistryThatLiesIsNotTrusted(t *testing.T) {
	t.Parallel()
	good := fakeregistry.Package("a.example/x", "1.0.0", "npm", "x", "")
	other := fakeregistry.Package("b.example/x", "1.0.0", "npm", "evil", "")
	for name, answer := range map[string]func(w http.ResponseWriter){
		"another name": func(w http.ResponseWriter) { fmt.Fprintf(w, `{"server":%s}`, other.Server) },
		"another version": func(w http.ResponseWriter) {
			fmt.Fprintf(w, `{"server":%s}`, strings.ReplaceAll(good.Server, "1.0.0", "6.6.6"))
		},
		"a range":          func(w http.ResponseWriter) { fmt.Fprint(w, `{"server":{"name":"a.example/x","version":"^1.0.0"}}`) },
		"an endless entry": func(w http.ResponseWriter) { fmt.Fprint(w, `{"server":"`+strings.Repeat("x", 5<<20)+`"}`) },
		"a page of HTML":   func(w http.ResponseWriter) { fmt.Fprint(w, `<html>`) },
		"an empty object":  func(w http.ResponseWriter) { fmt.Fprint(w, `{}`) },
	} {
		reg := fakeregistry.Start(t, good)
		reg.Answer = func(w http.ResponseWriter, _ *http.Request) bool { answer(w); return true }
		_, err := client(reg).Plan(t.Context(), mcpregistry.Request{Name: "a.example/x", Version: "1.0.0"})
		if e := capability.AsError(err); e == nil || e.Reason != mcpregistry.ReasonInvalid {
			t.Errorf("%s: %v, want reason %s", name, err, mcpregistry.ReasonInvalid)
		}
	}
	loop := fakeregistry.Start(t)
	loop.Answer = func(w http.ResponseWriter, _ *http.Request) bool {
		fmt.Fprint(w, `{"servers":[],"metadata":{"nextCursor":"again"}}`)
		return true
	}
	if _, err := client(loop).Search(t.Context(), "x"); capability.AsError(err) == nil || capability.AsError(err).Reason != mcpregistry.ReasonInvalid {
		t.Errorf("a loop of cursors: %v, want reason %s", err, mcpregistry.ReasonInvalid)
	}
	moved := fakeregistry.Start(t)
	moved.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		http.Redirect(w, r, "http://127.0.0.1:1/", http.StatusFound)
		return true
	}
	if _, err := client(moved).Search(t.Context(), "x"); capability.AsError(err) == nil || capability.AsError(err).Reason != mcpregistry.ReasonUnreached {
		t.Errorf("a redirect to another server: %v, want reason %s", err, mcpregistry.ReasonUnreached)
	}
}

func TestAPlanIsAnArgumentList(t *testing.T) {
	t.Parallel()
	entries := []fakeregistry.Entry{
		fakeregistry.Package("a.example/npm", "1.2.3", "npm", "@scope/server", `"runtimeHint":"sh",
			"packageArguments":[{"type":"positional","valueHint":"folder","isRequired":true,"format":"filepath"},
				{"type":"named","name":"--mode","default":"ro","choices":["ro","rw"]},
				{"type":"named","name":"--tag","isRepeated":true},
				{"type":"positional","value":"--level={level}","variables":{"level":{}}},
				{"type":"positional","value":"$(rm -rf /); {literal}"}],
			"environmentVariables":[{"name":"API_KEY","isRequired":true,"isSecret":true},{"name":"REGION","default":"eu"}]`),
		fakeregistry.Package("a.example/pypi", "0.4.1", "pypi", "my_server", ""),
		fakeregistry.Package("a.example/oci", "2.0.1", "oci", "ghcr.example/some/server", `
			"environmentVariables":[{"name":"TOKEN","isSecret":true,"isRequired":true},{"name":"A","value":"b"}],
			"runtimeArguments":[{"type":"named","name":"--mount","value":"type=bind,src={source},dst=/data",
				"variables":{"source":{"format":"filepath","default":"/etc"}}},{"type":"named","name":"-e","value":"X=y"}],
			"packageArguments":[{"type":"positional","value":"serve"}]`),
		fakeregistry.Remote("a.example/remote", "1.0.0", "https://mcp.example/{team}", `{"name":"Authorization","value":"Bearer {token}","isSecret":true,
			"isRequired":true},{"name":"X-Key","value":"{key}","variables":{"key":{"isSecret":true}}},{"name":"X-Kind","value":"plain"}`),
	}
	c := client(fakeregistry.Start(t, entries...), "podman")
	for _, test := range []struct {
		req  mcpregistry.Request
		want record.Record
	}{
		{
			mcpregistry.Request{
				Name: "a.example/npm", Inputs: map[string][]string{"folder": {"/srv/my docs"}, "--tag": {"a", "b;c"}},
				Secrets: map[string]string{"API_KEY": "my-key"},
			},
			record.Record{
				Name: "npm", Command: []string{
					"npx", "-y", "@scope/server@1.2.3", "/srv/my docs", "--mode", "ro", "--tag", "a", "--tag", "b;c", "$(rm -rf /); {literal}",
				}, Env: map[string]string{"REGION": "eu"}, EnvSecrets: map[string]string{"API_KEY": "my-key"},
			},
		},
		{mcpregistry.Request{Name: "a.example/pypi", As: "mine"}, record.Record{Name: "mine", Command: []string{"uvx", "my_server@0.4.1"}}},
		{
			mcpregistry.Request{
				Name: "a.example/oci", Inputs: map[string][]string{"source": {"/srv/docs"}}, Secrets: map[string]string{"TOKEN": "t"},
			},
			record.Record{
				Name: "oci", Command: []string{
					"podman", "run", "-i", "--rm", "-e", "A", "-e", "TOKEN", "--mount", "type=bind,src=/srv/docs,dst=/data", "-e", "X=y",
					"ghcr.example/some/server:2.0.1", "serve",
				}, Env: map[string]string{"A": "b"}, EnvSecrets: map[string]string{"TOKEN": "t"},
			},
		},
		{
			mcpregistry.Request{Name: "a.example/remote", Inputs: map[string][]string{"team": {"blue"}}, Secrets: map[string]string{"token": "bear", "key": "k"}},
			record.Record{
				Name: "remote", URL: "https://mcp.example/blue", BearerSecret: "bear", Headers: map[string]string{"X-Kind": "plain"},
				HeaderSecrets: map[string]string{"X-Key": "k"},
			},
		},
	} {
		p, err := c.Plan(t.Context(), test.req)
		if err != nil || p.Record == nil {
			t.Errorf("Plan(%s) = %+v, %v; want a record", test.req.Name, p.Inputs, err)
			continue
		}
		if p.Record.Trust != record.Untrusted || p.Record.Registry == nil || p.Record.Registry.Name != test.req.Name {
			t.Errorf("Plan(%s): trust %s, entry %v; want quarantine and the entry", test.req.Name, p.Record.Trust, p.Record.Registry)
		}
		test.want.Trust, test.want.Registry = p.Record.Trust, p.Record.Registry
		if d := cmp.Diff(test.want, *p.Record, cmp.Transformer("empty", func(m map[string]string) map[string]string {
			if len(m) == 0 {
				return nil
			}
			return m
		})); d != "" {
			t.Errorf("Plan(%s): record (-want +got):\n%s", test.req.Name, d)
		}
		if err := p.Record.Check(); err != nil {
			t.Errorf("the record of %s: %v, want a valid one", test.req.Name, err)
		}
	}
}

func TestAPlanIsRefusedForWhatCannotBeRunSafely(t *testing.T) {
	t.Parallel()
	deleted := fakeregistry.Package("a.example/deleted", "1.0.0", "npm", "x", "")
	deleted.Status = "deleted"
	sse := fakeregistry.Remote("a.example/sse", "1.0.0", "https://x.example/sse", "")
	sse.Server = strings.ReplaceAll(sse.Server, "streamable-http", "sse")
	argument := func(a string) string { return `"packageArguments":[` + a + `]` }
	engine := func(a string) string { return `"runtimeArguments":[` + a + `]` }
	c := client(fakeregistry.Start(t, deleted, sse,
		fakeregistry.Package("a.example/nuget", "1.0.0", "nuget", "x", ""),
		fakeregistry.Package("a.example/range", "1", "npm", "x", ""),
		fakeregistry.Package("a.example/tag", "next", "npm", "x", ""),
		fakeregistry.Package("a.example/flag", "1.0.0", "npm", "--call=id", ""),
		fakeregistry.Package("a.example/git", "1.0.0", "npm", "git+https://x.example/y", ""),
		fakeregistry.Package("a.example/http", "1.0.0", "npm", "x", `"transport":{"type":"streamable-http"}`),
		fakeregistry.Package("a.example/secret", "1.0.0", "npm", "x", argument(`{"type":"named","name":"--key","isSecret":true,"isRequired":true}`)),
		fakeregistry.Package("a.example/part", "1.0.0", "npm", "x",
			`"environmentVariables":[{"name":"DSN","value":"pg://u:{p}@h","variables":{"p":{"isSecret":true}}}]`),
		fakeregistry.Package("a.example/other", "1.0.0", "npm", "x", engine(`{"type":"named","name":"--package","value":"evil@latest"}`)),
		fakeregistry.Package("a.example/latest", "latest", "oci", "x.example/y", ""),
		fakeregistry.Package("a.example/latesttag", "1.0.0", "oci", "x.example/y:latest", ""),
		fakeregistry.Package("a.example/privileged", "1.0.0", "oci", "x.example/y", engine(`{"type":"positional","value":"--privileged"}`)),
		fakeregistry.Package("a.example/root", "1.0.0", "oci", "x.example/y", engine(`{"type":"named","name":"-v","value":"/:/host"}`)),
		fakeregistry.Package("a.example/hash", "1.0.0", "oci", "x.example/y", `"fileSha256":"`+strings.Repeat("0", 64)+`"`),
	), "docker")
	for _, name := range []string{
		"sse", "nuget", "range", "tag", "flag", "git", "http", "secret", "part", "other", "latesttag", "privileged", "root", "hash",
	} {
		_, err := c.Plan(t.Context(), mcpregistry.Request{Name: "a.example/" + name})
		if e := capability.AsError(err); e == nil || e.Reason != mcpregistry.ReasonUnsupported {
			t.Errorf("Plan(%s) = %v, want reason %s", name, err, mcpregistry.ReasonUnsupported)
		}
	}
	for name, want := range map[string]string{"deleted": mcpregistry.ReasonDeleted, "latest": mcpregistry.ReasonInvalid, "none": "registry_not_found"} {
		_, err := c.Plan(t.Context(), mcpregistry.Request{Name: "a.example/" + name})
		if e := capability.AsError(err); e == nil || e.Reason != want {
			t.Errorf("Plan(%s) = %v, want reason %s", name, err, want)
		}
	}
}

func TestInputsAreChecked(t *testing.T) {
	t.Parallel()
	c := client(fakeregistry.Start(t, fakeregistry.Package("a.example/x", "1.0.0", "npm", "x", `"packageArguments":[
		{"type":"named","name":"--port","format":"number"},{"type":"named","name":"--mode","choices":["a","b"]},
		{"type":"positional","valueHint":"dir","format":"filepath","isRequired":true}],
		"environmentVariables":[{"name":"KEY","isSecret":true}]`)))
	for _, req := range []mcpregistry.Request{
		{Inputs: map[string][]string{"--port": {"x"}}},
		{Inputs: map[string][]string{"--mode": {"c"}}},
		{Inputs: map[string][]string{"dir": {"a"}}},
		{Inputs: map[string][]string{"KEY": {"plain"}}},
		{Secrets: map[string]string{"dir": "s"}},
		{Inputs: map[string][]string{"none": {"x"}}},
		{Inputs: map[string][]string{"--port": {"1", "2"}}},
		{Inputs: map[string][]string{"dir": {"/a\nb"}}},
	} {
		req.Name = "a.example/x"
		_, err := c.Plan(t.Context(), req)
		if e := capability.AsError(err); e == nil || e.Reason != mcpregistry.ReasonInput {
			t.Errorf("Plan(%v %v) = %v, want reason %s", req.Inputs, req.Secrets, err, mcpregistry.ReasonInput)
		}
	}
	p, err := c.Plan(t.Context(), mcpregistry.Request{Name: "a.example/x"})
	if err != nil || p.Record != nil || len(p.Inputs) != 4 {
		t.Errorf("Plan without inputs = %+v, %v; want four inputs and no record", p, err)
	}
}

func TestTheDeclaredHashIsCompared(t *testing.T) {
	t.Parallel()
	sum := sha256.Sum256([]byte("archive"))
	right := hex.EncodeToString(sum[:])
	hash := func(kind, name, value string) fakeregistry.Entry {
		return fakeregistry.Package("a.example/"+name, "1.0.0", kind, "my-x", `"fileSha256":"`+value+`"`)
	}
	wrong := strings.Repeat("1", 64)
	reg := fakeregistry.Start(t, hash("npm", "n", right), hash("npm", "nbad", wrong), hash("pypi", "p", right), hash("pypi", "pbad", wrong),
		hash("npm", "form", "xyz"))
	reg.Answer = func(w http.ResponseWriter, r *http.Request) bool {
		switch r.URL.Path {
		case "/npm/my-x/1.0.0":
			fmt.Fprintf(w, `{"dist":{"tarball":"%s/npm/my-x.tgz"}}`, reg.URL)
		case "/npm/my-x.tgz":
			fmt.Fprint(w, "archive")
		case "/simple/my-x/":
			fmt.Fprintf(w, `{"files":[{"filename":"my_x-1.0.0.post1.tar.gz","hashes":{"sha256":%q}},{"filename":"my_x-1.0.0-py3.whl","hashes":{"sha256":%q}}]}`,
				wrong, right)
		default:
			return false
		}
		return true
	}
	c := client(reg)
	for name, want := range map[string]string{
		"n": "", "p": "", "nbad": "registry_hash", "pbad": "registry_hash", "form": mcpregistry.ReasonInvalid,
	} {
		_, err := c.Plan(t.Context(), mcpregistry.Request{Name: "a.example/" + name})
		got := ""
		if err != nil {
			got = capability.AsError(err).Reason
		}
		if got != want {
			t.Errorf("Plan(%s) = %v, want reason %q", name, err, want)
		}
	}
	off := mcpregistry.New(mcpregistry.Config{Base: reg.URL, HTTP: http.DefaultClient})
	if _, err := off.Plan(t.Context(), mcpregistry.Request{Name: "a.example/n"}); capability.CodeOf(err) != capability.CodeInvalidInput {
		t.Errorf("a hash without the address of the registry: %v, want invalid_input", err)
	}
}

func TestStatusIsRememberedAndAMissingEntryIsDeleted(t *testing.T) {
	t.Parallel()
	reg := fakeregistry.Start(t, fakeregistry.Package("a.example/x", "1.0.0", "npm", "x", ""))
	c := client(reg)
	for range 2 {
		if got, err := c.Status(t.Context(), "a.example/x", "1.0.0"); err != nil || got != mcpregistry.StatusActive {
			t.Errorf("Status = %s, %v; want active", got, err)
		}
		reg.Answer = func(w http.ResponseWriter, _ *http.Request) bool { w.WriteHeader(http.StatusTeapot); return true }
	}
	reg.Answer = nil
	if got, err := c.Status(t.Context(), "a.example/y", "1.0.0"); err != nil || got != mcpregistry.StatusDeleted {
		t.Errorf("Status of a missing entry = %s, %v; want deleted", got, err)
	}
	off := mcpregistry.New(mcpregistry.Config{HTTP: http.DefaultClient})
	if _, err := off.Search(t.Context(), "x"); capability.AsError(err).Reason != mcpregistry.ReasonOff {
		t.Errorf("without a registry: %v, want reason %s", err, mcpregistry.ReasonOff)
	}
}

func TestAnEntryMountsAndSteersNothing(t *testing.T) {
	t.Parallel()
	var entries []fakeregistry.Entry
	mounts := []string{
		`type=bind,src={f},dst=/data,\"source=/\"`, `type=bind,src={f},dst=/data,SRC=/,DST=/host`, `type=bind,src={f},dst=/data,src=/`,
		`type=volume,src={f},dst=/data,volume-opt=device=/`, `type=bind,src={},dst=/data`, `type=bind,dst=/data`, `src={f},dst=/data`,
		`type=bind,src={f}/..,dst=/data`, `type=bind, source=/,src={f},dst=/data`,
	}
	for i, value := range mounts {
		entries = append(entries, fakeregistry.Package(fmt.Sprintf("a.example/mount%d", i), "1.0.0", "oci", "x.example/y",
			`"runtimeArguments":[{"type":"named","name":"--mount","value":"`+value+`","variables":{"f":{"isRequired":true},"":{}}}]`))
	}
	variables := []string{
		"NPM_CONFIG_REGISTRY", "npm_config_node_options", "UV_INDEX_URL", "PIP_INDEX_URL", "DOCKER_HOST", "PATH", "home", "HTTPS_PROXY",
		"XDG_CONFIG_HOME", "LD_PRELOAD",
	}
	for i, name := range variables {
		entries = append(entries, fakeregistry.Package(fmt.Sprintf("a.example/variable%d", i), "1.0.0", "npm", "x",
			`"environmentVariables":[{"name":"`+name+`","value":"x"}]`))
	}
	c := client(fakeregistry.Start(t, entries...), "docker")
	for _, e := range entries {
		plan, err := c.Plan(t.Context(), mcpregistry.Request{Name: e.Name, Inputs: map[string][]string{"f": {"/tmp/data"}}})
		if got := capability.AsError(err); got == nil || got.Reason != mcpregistry.ReasonUnsupported {
			t.Errorf("Plan(%s) = %+v, %v, want reason %s: %s", e.Name, plan.Record, err, mcpregistry.ReasonUnsupported, e.Server)
		}
	}
}
