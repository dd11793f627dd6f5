package main

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestConnectSendsWhatTheConnectAPIReads compares the flags with the members of the
// request body. Flags that are not given are not sent.
func TestConnectSendsWhatTheConnectAPIReads(t *testing.T) {
	t.Parallel()
	var got map[string]any
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		got = nil
		data, _ := io.ReadAll(r.Body)
		_ = json.Unmarshal(data, &got)
		_, _ = io.WriteString(w, `{"success":true}`)
	}))
	t.Cleanup(server.Close)
	key := filepath.Join(t.TempDir(), "key")
	if err := os.WriteFile(key, []byte("from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	run := func(args, env []string) (status int, said string) {
		var out, errs bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &errs, environ: env}
		status = a.execute(t.Context(), append([]string{"--server", server.URL, "--token", "t", "--json", "connect"}, args...))
		return status, out.String() + errs.String()
	}
	object := func(text string) (out map[string]any) {
		if err := json.Unmarshal([]byte(text), &out); err != nil {
			t.Fatal(err)
		}
		return out
	}
	for _, c := range []struct {
		args, env []string
		want      string
	}{
		{[]string{"http://h"}, nil, `{"endpoint":{"baseUrl":"http://h"}}`},
		{
			[]string{
				"http://h", "--id", "i", "--provider", "e2b", "--endpoint-token", "t", "--allowed-module", "a,b", "--allowed-module", "c",
				"--no-persist", "--keep-missing", "--request-timeout-ms", "5",
			},
			nil,
			`{"endpoint":{"baseUrl":"http://h","id":"i","token":"t"},"provider":"e2b","allowedModuleIds":["a","b","c"],"persist":false,"unloadMissing":false,"requestTimeoutMs":5}`,
		},
		{
			[]string{"--cloud", "--cloud-name", "n"},
			[]string{"ELIZAOS_CLOUD_API_KEY=k", "ELIZAOS_CLOUD_BASE_URL=https://c.example.org/api/v1/"},
			`{"cloud":{"cloudApiBase":"https://c.example.org","authToken":"k","name":"n"}}`,
		},
		{
			[]string{
				"--cloud", "--cloud-name", "n", "--cloud-api-base", "https://d.example.org", "--cloud-auth-token-file", key, "--cloud-bio", "one, two",
				"--cloud-bio", "three",
				"--id", "i", "--endpoint-token", "t", "--cloud-timeout-ms", "7", "--cloud-poll-interval-ms", "8", "--allowed-module", "a",
			},
			[]string{"ELIZAOS_CLOUD_API_KEY=k"},
			`{"cloud":{"cloudApiBase":"https://d.example.org","authToken":"from-file","name":"n","bio":["one, two","three"],"endpointId":"i","token":"t","timeoutMs":7,"pollIntervalMs":8},"allowedModuleIds":["a"]}`,
		},
	} {
		status, said := run(c.args, c.env)
		if d := cmp.Diff(object(c.want), got); status != 0 || d != "" {
			t.Errorf(`%v: status %d, %s %s; want status = 0, d = ""`, c.args, status, said, d)
		}
	}
	for _, c := range []struct {
		args []string
		says string
	}{
		{nil, "needs the URL of an endpoint, or --cloud"},
		{[]string{"http://h", "--cloud"}, "not both"},
		{[]string{"http://h", "--cloud-name", "n"}, "--cloud-name is of use with --cloud only"},
		{[]string{"--cloud", "--cloud-name", "n"}, "needs your token at the cloud"},
		{[]string{"--cloud", "--cloud-auth-token", "k"}, "needs --cloud-name"},
		{[]string{"--cloud", "--cloud-auth-token", "k", "--cloud-auth-token-file", key}, "not both"},
		{[]string{"--cloud", "--provider", "e2b"}, "belongs to a URL"},
	} {
		if status, said := run(c.args, nil); status != 2 || !strings.Contains(said, c.says) {
			t.Errorf("%v: status %d, %s; want status = 2, said with %v", c.args, status, said, c.says)
		}
	}
}

// An agent of elizaOS has the connect API and no list of endpoints, and its errors are a text alone.
func TestConnectWorksAtAnAgentOfElizaOS(t *testing.T) {
	t.Parallel()
	const connected = `{"success":true,"mode":"endpoint","endpoint":{"id":"tools","baseUrl":"http://h"},"sync":{"registered":["@you/notes"]}}`
	for _, tc := range []struct {
		what, connect, show, want string
		status, showStatus, exit  int
	}{
		{"no list", connected, `{"error":"Not found"}`, "registered @you/notes", 200, 404, 0},
		{"refused", `{"error":"Module notes was rejected"}`, ``, "Module notes was rejected", 400, 404, 1},
		{
			"a server of ours that fails", connected, `{"error":{"code":"failed","message":"the store is full"}}`, "the store is full", 200, 500, 1,
		},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			status, body := tc.showStatus, tc.show
			if r.Method == http.MethodPost {
				status, body = tc.status, tc.connect
			}
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}))
		var out bytes.Buffer
		a := &app{stdin: strings.NewReader(""), stdout: &out, stderr: &out}
		exit := a.execute(t.Context(), []string{"--server", server.URL, "--token", "t", "connect", "http://h"})
		server.Close()
		if exit != tc.exit || !strings.Contains(out.String(), tc.want) {
			t.Errorf("%s: got exit %d and %s, want exit %d with %q", tc.what, exit, out.String(), tc.exit, tc.want)
		}
	}
}
