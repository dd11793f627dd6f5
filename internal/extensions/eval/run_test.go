package eval_test

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/extensions/eval"
)

const tool = `{"id":"a","contributions":[{"id":"t","kind":"capability.agent-tool","tool":{"name":"go"}}]}`

func scenario(body string) []byte {
	return []byte(`[{"id":"S","extensions":[` + tool + `],` + body + `}]`)
}

func TestRunFilesPrintsALineForEachAskAndOrder(t *testing.T) {
	t.Parallel()
	files := []eval.File{
		{Name: "a.json", Data: scenario(`"ask":[{"op":"agentNames","expect":["go"]},{"op":"tool","name":"none","expect":null}]`)},
		{Name: "b.json", Data: []byte(`[{"id":"T","ask":[{"op":"agentNames","expect":{"$contains":["go"],"$lacks":[]}}]}]`)},
	}
	var out bytes.Buffer
	ok, err := eval.RunFiles(eval.Fixtures{}, files[:1], &out)
	if err != nil || !ok {
		t.Fatalf("err = %v, want nil; ok = %v, want true", err, ok)
	}
	if ok, err = eval.RunFiles(eval.Fixtures{}, files, &out); err != nil || ok {
		t.Fatal("an answer that is not expected", ok, err)
	}
	want := []string{
		`{"id":"S","index":0,"order":"given","ok":true,"got":["go"]}`, `{"id":"S","index":1,"order":"given","ok":true,"got":null}`,
		`{"id":"S","index":0,"order":"reversed","ok":true,"got":["go"]}`, `{"id":"S","index":1,"order":"reversed","ok":true,"got":null}`,
		`{"id":"S","index":0,"order":"rotated","ok":true,"got":["go"]}`, `{"id":"S","index":1,"order":"rotated","ok":true,"got":null}`,
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if got := lines[:6]; strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf(`%s; want strings.Join(got, "\n") = strings.Join(want, "\n")`, strings.Join(got, "\n"))
	}
	if len(lines) != 15 || lines[14] != `{"id":"T","index":0,"order":"rotated","ok":false,"got":[]}` {
		t.Errorf("%d lines, %s; want len(lines) = 15, lines[14] = "+
			`"{\"id\":\"T\",\"index\":0,\"order\":\"rotated\",\"ok\":false,\"got\":[]}"`, len(lines), lines[len(lines)-1])
	}
}

func TestErrorsSayWhere(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		file  []byte
		words string
	}{
		"no array":        {[]byte(`{}`), "f.json array of scenarios"},
		"two values":      {[]byte(`[] []`), "f.json"},
		"unknown field":   {scenario(`"asks":[]`), "f.json /0/asks known"},
		"unknown ask":     {scenario(`"ask":[{"op":"agentNames"},{"op":"tool","nmae":"x"}]`), "/0/ask/1/nmae"},
		"unknown op":      {scenario(`"ask":[{"op":"boot"},{"op":"dance"}]`), "f.json scenario S question 1 dance"},
		"no op":           {scenario(`"ask":[{}]`), "question 0"},
		"caller":          {scenario(`"ask":[{"op":"select","action":"fs.list","caller":"robot"}]`), "question 0 robot"},
		"comparison":      {scenario(`"ask":[{"op":"boot","expect":{"$has":[]}}]`), "question 0 $has"},
		"no list":         {scenario(`"ask":[{"op":"boot","expect":[{"$contains":"x"}]}]`), "question 0 $contains"},
		"context":         {scenario(`"ask":[{"op":"agentNames","ctx":"moon"}]`), "f.json scenario S question 0 moon"},
		"fixture":         {[]byte(`[{"id":"S","use":["core"],"ask":[]}]`), "f.json scenario S core"},
		"settings":        {scenario(`"config":{"crossContext":"maybe"},"ask":[]`), "f.json scenario S"},
		"unknown setting": {scenario(`"config":{"slotz":{}},"ask":[]`), "slotz"},
		"manifest":        {[]byte(`[{"id":"S","extensions":[{"id":"-"}],"ask":[]}]`), "f.json scenario S"},
		"manifest field":  {[]byte(`[{"id":"S","extensions":[{"id":"a","contributionz":[]}],"ask":[]}]`), "scenario S contributionz"},
		"id twice":        {[]byte(`[{"id":"S","ask":[]},{"id":"S","ask":[]}]`), "scenario 1"},
		"too many asks":   {scenario(`"ask":[` + strings.Repeat(`{"op":"boot"},`, 10_000) + `{"op":"boot"}]`), "limit"},
		"too large":       {make([]byte, 16<<20+1), "limit"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			ok, err := eval.RunFiles(eval.Fixtures{}, []eval.File{{Name: "f.json", Data: c.file}}, new(bytes.Buffer))
			if err == nil || ok {
				t.Fatal("no error; want an error, ok = false")
			}
			for _, word := range strings.Fields(c.words) {
				if !strings.Contains(err.Error(), word) {
					t.Errorf("%q is missing in: %s; want err.Error() with %v", word, err, word)
				}
			}
		})
	}
	if _, err := eval.ParseFixtures([]byte(`{"extension":{}}`)); err == nil {
		t.Error("fixtures with an unknown field; want an error")
	}
}

func TestAFullPipeIsAnError(t *testing.T) {
	t.Parallel()
	full := errors.New("full")
	if _, err := eval.RunFiles(eval.Fixtures{}, []eval.File{{Name: "f", Data: scenario(`"ask":[{"op":"boot"}]`)}},
		writer(func([]byte) (int, error) { return 0, full })); !errors.Is(err, full) {
		t.Errorf("%v; want err is %v", err, full)
	}
}

type writer func([]byte) (int, error)

func (w writer) Write(p []byte) (int, error) { return w(p) }

// TestAnswersOfTheWholePackAreJSONLines runs the acceptance pack as the command
// does.
func TestAnswersOfTheWholePackAreJSONLines(t *testing.T) {
	t.Parallel()
	fixtures, err := eval.ParseFixtures(read(t, "fixtures.json"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	if ok, err := eval.RunFiles(fixtures, []eval.File{{Name: "scenarios.json", Data: read(t, "scenarios.json")}}, &out); err != nil || !ok {
		t.Fatalf("eval.RunFiles: err = %v, want nil; ok = %v, want true", err, ok)
	}
	for lines := bufio.NewScanner(&out); lines.Scan(); {
		var members map[string]any
		if err := json.Unmarshal(lines.Bytes(), &members); err != nil || len(members) != 5 {
			t.Fatalf("json.Unmarshal(lines.Bytes(), &members) = %v, want nil; len(members) = %v, want 5; lines.Text() = %q",
				err, len(members), lines.Text())
		}
	}
}
