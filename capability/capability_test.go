package capability_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
)

var update = flag.Bool("update", false, "write the golden files")

// golden compares with testdata/name.
func golden(t *testing.T, name, got string) {
	t.Helper()
	path := filepath.Join("testdata", name)
	if *update {
		if err := os.WriteFile(path, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(string(want), got); d != "" {
		t.Errorf("diff (-want +got):\n%s", d)
	}
}

func TestTheErrorTable(t *testing.T) {
	t.Parallel()
	var b strings.Builder
	seen := make(map[capability.Code]bool)
	for _, r := range capability.CodeTable() {
		fmt.Fprintf(&b, "%-20s %d %-26s %d  %s\n", r.Code, r.HTTP, r.Router, r.Exit, r.Meaning)
		if seen[r.Code] || r.Code.Row() != r || !strings.HasSuffix(r.Meaning, ".") {
			t.Errorf("%+v", r)
		}
		seen[r.Code] = true
	}
	golden(t, "codes.golden", b.String())
	if len(seen) != 16 {
		t.Errorf("%d codes; want len(seen) = 16", len(seen))
	}
	if capability.Code("made up").Row().Code != capability.CodeInternal {
		t.Error(`an unknown code is not internal; want capability.Code("made up").Row().Code = capability.CodeInternal`)
	}
}

func TestErrorsTellStrangersNothingOfTheirCause(t *testing.T) {
	t.Parallel()
	cause := errors.New("open the inner file")
	e := capability.Wrap(capability.CodeFailed, "fs.read", "the file cannot be read", cause).With("io", "look at it").Detail("path",
		"a").Detail("n", 1)
	e.RetryAfter = 1500 * time.Millisecond
	doc, err := json.Marshal(e)
	want := `{"code":"failed","reason":"io","message":"the file cannot be read","hint":"look at it","details":{"n":1,"path":"a"},"retry_after_ms":1500}`
	if err != nil || string(doc) != want || strings.Contains(e.Error(), "inner") || !errors.Is(e, cause) {
		t.Errorf(`%s %v; want no error, string(doc) = %v, e.Error() without "inner", e is %v`, doc, err, want, cause)
	}
	var back capability.Error
	if err := json.Unmarshal(doc, &back); err != nil || back.Code != e.Code || back.Reason != "io" || back.RetryAfter != e.RetryAfter ||
		back.Hint != e.Hint {
		t.Errorf(`%+v %v; want no error, back.Code = %v, back.Reason = "io", back.RetryAfter = %v, back.Hint = %v`,
			back, err, e.Code, e.RetryAfter, e.Hint)
	}
	if err := json.Unmarshal([]byte(`{"code":1}`), &back); err == nil {
		t.Error("a number is a code; want an error")
	}
}

func TestAnyErrorBecomesOneOfTheSixteen(t *testing.T) {
	t.Parallel()
	own := capability.Errorf(capability.CodeConflict, "op", "taken: %w", errors.New("cause"))
	for _, tt := range []struct {
		err  error
		want capability.Code
	}{
		{nil, ""},
		{own, capability.CodeConflict},
		{fmt.Errorf("wrapped: %w", own), capability.CodeConflict},
		{context.Canceled, capability.CodeCancelled},
		{fmt.Errorf("read: %w", context.DeadlineExceeded), capability.CodeTimeout},
		{errors.New("secret"), capability.CodeInternal},
	} {
		if got := capability.CodeOf(tt.err); got != tt.want {
			t.Errorf("%v is %s; want got = %v", tt.err, got, tt.want)
		}
	}
	if e := capability.AsError(errors.New("secret")); strings.Contains(e.Error(), "secret") {
		t.Errorf(`capability.AsError(errors.New("secret")) = %v, want it not to contain "secret"`, e)
	}
	if capability.AsError(nil) != nil || own.Error() != "op: taken: cause" || (&capability.Error{Message: "m"}).Error() != "m" {
		t.Errorf(`capability.AsError(nil) = %v, want nil; own = %v, want "op: taken: cause"; (&capability.Error{Message: "m"}) = %v, want "m"`,
			capability.AsError(nil), own, (&capability.Error{Message: "m"}))
	}
}

func TestTargetsReadAndWriteAlike(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]capability.Target{
		"fs.list":            {Action: "fs.list"},
		"a/b#fs.list@c:d":    {Capability: "a/b#fs.list@c:d"},
		"m:action:GO":        {Member: capability.Member{Module: "m", Kind: "action", Name: "GO"}},
		"m:route:GET /x/:id": {Member: capability.Member{Module: "m", Kind: "route", Name: "GET /x/:id"}},
	} {
		got, err := capability.ParseTarget(in)
		if d := cmp.Diff(want, got); err != nil || d != "" || got.String() != in {
			t.Errorf(`%s: %v %s; want no error, d = "", got.String() = %v`, in, err, d, in)
		}
	}
	for _, bad := range []string{"", "a:b", "a::b", ":a:b", "a:b:"} {
		if _, err := capability.ParseTarget(bad); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%q: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
}

func TestProviderKeysEscapeEachSegment(t *testing.T) {
	t.Parallel()
	k := capability.NewProviderKey("fs", "end:point", "a/b c%é~._-")
	if k != "fs:end%3Apoint:a%2Fb%20c%25%C3%A9~._-" {
		t.Errorf(`k = %q, want "fs:end%%3Apoint:a%%2Fb%%20c%%25%%C3%%A9~._-"`, k)
	}
	if d, kind, i := k.Parts(); d != "fs" || kind != "end%3Apoint" || i != "a%2Fb%20c%25%C3%A9~._-" {
		t.Errorf(`k.Parts(): d = %q, want "fs"; kind = %q, want "end%%3Apoint"; i = %q, want "a%%2Fb%%20c%%25%%C3%%A9~._-"`, d, kind, i)
	}
	if d, kind, i := capability.ProviderKey("x").Parts(); d != "x" || kind != "" || i != "" {
		t.Errorf(`capability.ProviderKey("x").Parts(): d = %q, want "x"; kind = %q, want ""; i = %q, want ""`, d, kind, i)
	}
}

func TestEffectsAreOrdered(t *testing.T) {
	t.Parallel()
	order := []capability.Effect{capability.EffectRead, capability.EffectWrite, capability.EffectExternal, capability.EffectAdmin}
	for i, e := range order {
		for j, floor := range order {
			if e.AtLeast(floor) != (i >= j) {
				t.Errorf("%s at least %s: %v; want e.AtLeast(floor) = (i >= j)", e, floor, i < j)
			}
		}
		if e.Mutates() != (i > 0) {
			t.Errorf("%s mutates: %v; want e.Mutates() = (i > 0)", e, i == 0)
		}
	}
	if odd := capability.Effect("odd"); !odd.Mutates() || !odd.AtLeast(capability.EffectExternal) || odd.AtLeast(capability.EffectAdmin) {
		t.Error("an unknown effect is not external")
	}
}

func TestOnlyReadyAndDegradedTakeCalls(t *testing.T) {
	t.Parallel()
	for _, s := range []capability.State{
		"", capability.StateReady, capability.StateDegraded, capability.StateStarting, capability.StateDraining,
		capability.StateUnconfigured, capability.StateUnauthorized, capability.StateUnavailable, "odd",
	} {
		want := s == "" || s == capability.StateReady || s == capability.StateDegraded
		if (capability.Availability{State: s}).Eligible() != want {
			t.Errorf("%q eligible: %v; want (capability.Availability{State: s}).Eligible() = %v", s, !want, want)
		}
	}
}
