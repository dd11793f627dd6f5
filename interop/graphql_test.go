package interop

import (
	"encoding/json"
	"io"
	"net/http"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// TestGraphQLOfTheReferenceImplementation calls the fields of a schema as tools at graphql-js, which
// validates what is sent.
func TestGraphQLOfTheReferenceImplementation(t *testing.T) {
	w := newWorld(t)
	address := freeAddress(t)
	cmd := exec.CommandContext(t.Context(), w.node, "graphql.mjs", address)
	cmd.Stderr = logWriter{t, "graphql"}
	cmd.WaitDelay = 5 * time.Second
	ok(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // killed, so that its status is not 0
	})
	awaitListener(t, address)
	w.cli("mcp", "add", "shop", "--graphql", "http://"+address+"/graphql", "--local")

	const product = `{"__typename":"Product","id":"p1","name":"Lamp"}`
	const customer = `{"__typename":"Customer","id":"c1","name":"Ada","orders":{"__typename":"Orders","edges":[],` +
		`"pageInfo":{"__typename":"PageInfo","endCursor":null,"hasNextPage":false}}}`
	order := func(id string) string {
		return `{"__typename":"Order","customer":` + customer + `,"id":"` + id + `","lines":[[{"__typename":"Line","amount":3,"product":` +
			product + `}]],"placed":"2026-01-02","status":"OPEN"}`
	}
	tests := []struct {
		name, field, input string
		want               string // the field's value, or a part of the error
		fails              bool
	}{
		{"an object to four levels", "order", `{"id":"7"}`, order("7"), false},
		{
			"a list of a union, and a default of a non-null argument", "find", `{"text":"x"}`,
			`[{"__typename":"Customer"},{"__typename":"Order"},{"__typename":"Product"}]`, false,
		},
		{"an interface", "node", `{"id":"n"}`, `{"__typename":"Product","id":"n"}`, false},
		{"lists of lists", "matrix", `{"rows":[[1,2],[3]]}`, `[[1,2],[3]]`, false},
		{"a scalar without arguments", "now", `{}`, `"2026-01-02"`, false},
		{"arguments with names of the language", "type", `{"query":"q","mutation":2}`, `"q 2"`, false},
		{"one of several inputs", "product", `{"by":{"name":"p9"}}`, `{"__typename":"Product","id":"p9","name":"Lamp"}`, false},
		{
			"a mutation with inputs and their defaults", "place", `{"order":{"customer":"c","lines":[{"product":"p"}]}}`,
			order("c p 1 none"), false,
		},
		{"a default with quotes", "cancel", `{"id":"x"}`, `true`, false},
		{"two of one", "product", `{"by":{"id":"p","name":"q"}}`, "exactly one field must be specified", true},
		{"an error of the field", "broken", `{}`, "the lamp is broken", true},
		{"a value that the enum does not have", "orders", `{"filter":{"status":"LOST"}}`, `"OPEN", "PAID", "CLOSED"`, true},
		{"an argument that is missing", "order", `{}`, "id", true},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			run := exec.CommandContext(t.Context(), w.binary, "--home", w.home, "invoke", "shop/"+tt.field, tt.input)
			run.Env = environment()
			var errs strings.Builder
			run.Stderr = &errs
			out, err := run.Output()
			if tt.fails {
				if err == nil || !strings.Contains(errs.String(), tt.want) {
					t.Errorf("invoke: got %s %q, %v, want an error with %q", out, errs.String(), err, tt.want)
				}
				return
			}
			var result struct {
				StructuredContent struct{ Data map[string]any }
			}
			if err == nil {
				err = json.Unmarshal(out, &result)
			}
			got, _ := json.Marshal(result.StructuredContent.Data[tt.field])
			if err != nil || string(got) != tt.want {
				t.Errorf("invoke: got %s, %v, want %s\n%s", got, err, tt.want, errs.String())
			}
		})
	}
	resp, err := http.Get("http://" + address + "/refused")
	ok(t, err)
	defer resp.Body.Close()
	if body, err := io.ReadAll(resp.Body); err != nil || string(body) != `{"refused":0,"first":""}` {
		t.Errorf("documents that do not fit the schema: got %s, %v, want none", body, err)
	}
}
