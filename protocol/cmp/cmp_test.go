package cmp_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/protocol/cmp"
)

func TestArgumentsFollowTheOneRule(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		``:                                      `{"args":[],"kwargs":{}}`,
		`null`:                                  `{"args":[],"kwargs":{}}`,
		`{"__args__":[1]}`:                      `{"args":[1],"kwargs":{}}`,
		`{"__kwargs__":{"args":1}}`:             `{"args":[],"kwargs":{"args":1}}`,
		`{"args":[1],"kwargs":null}`:            `{"args":[1],"kwargs":{}}`,
		`{"args":[1],"kwargs":{}}`:              `{"args":[1],"kwargs":{}}`,
		`{"args":"-la"}`:                        `{"args":[],"kwargs":{"args":"-la"}}`,
		`{"args":[1],"x":2}`:                    `{"args":[],"kwargs":{"args":[1],"x":2}}`,
		`{"a":1}`:                               `{"args":[],"kwargs":{"a":1}}`,
		`{}`:                                    `{"args":[],"kwargs":{}}`,
		`[1,"b"]`:                               `{"args":[1,"b"],"kwargs":{}}`,
		`"x"`:                                   `{"args":["x"],"kwargs":{}}`,
		`7`:                                     `{"args":[7],"kwargs":{}}`,
		`{"__args__":"x"}`:                      "",
		`{"__kwargs__":[1]}`:                    "",
		`{"__args__":[1],"other":1}`:            "",
		`{"a":1,"a":2}`:                         "",
		`[`:                                     "",
		strings.Repeat("[", 100):                "",
		`[` + strings.Repeat("1,", 1025) + `1]`: "",
	} {
		a, err := cmp.ParseArguments(json.RawMessage(in))
		got, _ := jsonx.Marshal(a)
		if want == "" {
			if e := capability.AsError(err); e == nil || e.Code != capability.CodeInvalidInput {
				t.Errorf("%.40s: %s, %v; want e not nil, e.Code = capability.CodeInvalidInput", in, got, err)
			}
		} else if err != nil || string(got) != want {
			t.Errorf("%.40s: %s, %v; want %s", in, got, err, want)
		}
	}
}

func TestArgumentsGetTheirNames(t *testing.T) {
	t.Parallel()
	bind := func(in string) (string, error) {
		a, err := cmp.ParseArguments(json.RawMessage(in))
		if err != nil {
			return "", err
		}
		m, err := a.Bind(1, "first", "second")
		return fmt.Sprintf("%s", m), err
	}
	for in, want := range map[string]string{
		`["a"]`:          `map[first:"a"]`,
		`{"second":1}`:   `map[second:1]`,
		`{"first":null}`: `map[]`,
		`{"third":1}`:    "",
		`["a","b"]`:      "",
		`{"__args__":[1],"__kwargs__":{"first":2}}`: "",
	} {
		got, err := bind(in)
		if want == "" && capability.AsError(err) == nil || want != "" && got != want {
			t.Errorf(`%s: %s, %v; want not (want == "" && capability.AsError(err) == nil), not (want != "" && got != want)`,
				in, got, err)
		}
	}
	for in, want := range map[string]string{
		"true": "true", "0": "false", `"false"`: "false", "": "true", `"yes"`: "error", "2": "error",
		"[]": "error",
	} {
		v, err := cmp.Bool(json.RawMessage(in), "x", true)
		if got := fmt.Sprint(v); err == nil && got != want || err != nil && want != "error" {
			t.Errorf(`%s: %v %v; want not (err == nil && got != want), not (err != nil && want != "error")`, in, v, err)
		}
	}
}

// TestErrorsTravel checks the code of each reason, and that it survives the wire.
func TestErrorsTravel(t *testing.T) {
	t.Parallel()
	for _, row := range cmp.Errors() {
		e := cmp.Errorf(row.Reason, "it went wrong")
		w := cmp.FromError(e, "n", "f", false)
		back := w.Capability()
		if e.Code != row.Code || w.Code != row.Reason || w.Type != row.Type || w.Retryable != (row.Retry == cmp.RetryYes) ||
			back.Code != row.Code || back.Reason != row.Reason {
			t.Errorf("%s: %+v %+v %+v; want e.Code = %v, w.Code = %v, w.Type = %v, w.Retryable = (row.Retry == cmp.RetryYes), "+
				"back.Code = %v, back.Reason = %v", row.Reason, e, w, back, row.Code, row.Reason, row.Type, row.Code, row.Reason)
		}
		if cmp.FromError(e, "", "", true).Retryable != (row.Retry != cmp.RetryNo) {
			t.Errorf(`%s: when it may run twice; want cmp.FromError(e, "", "", true).Retryable = (row.Retry != cmp.RetryNo)`,
				row.Reason)
		}
	}
	sent := cmp.Errorf(cmp.ReasonConnection, "x")
	sent.Code = capability.CodeFailed
	if w := cmp.FromError(sent, "", "", false); w.Retryable || w.Capability().Code != capability.CodeFailed {
		t.Errorf("what was sent is not sent again: %+v; want w.Retryable = false, w.Capability().Code = capability.CodeFailed", w)
	}
	plain := cmp.FromError(errors.New("the password is x"), "", "", false)
	if plain.Code != cmp.ReasonExecution || strings.Contains(plain.Message, "password") {
		t.Errorf(`%+v; want plain.Code = cmp.ReasonExecution, plain.Message without "password"`, plain)
	}
	long := cmp.FromError(cmp.Errorf(cmp.ReasonExecution, "%s", strings.Repeat("é", 4000)), "", "", false)
	if len(long.Message) > cmp.MaxMessage {
		t.Errorf("%d bytes; want len(long.Message) at most cmp.MaxMessage", len(long.Message))
	}
	forged := (&cmp.WireError{Code: "internal", Message: "m", RetryAfter: 1 << 62}).Capability()
	if forged.Code != capability.CodeFailed || forged.RetryAfter > 24*time.Hour {
		t.Errorf("%+v; want forged.Code = capability.CodeFailed, forged.RetryAfter at most 24 * time.Hour", forged)
	}
}

func TestEachReasonIsInTheTable(t *testing.T) {
	t.Parallel()
	src, err := os.ReadFile("errors.go")
	if err != nil {
		t.Fatal(err)
	}
	rows := make(map[string]bool)
	for _, r := range cmp.Errors() {
		rows[r.Reason] = true
	}
	all := regexp.MustCompile(`Reason\w+\s+= "(\w+)"`).FindAllStringSubmatch(string(src), -1)
	if len(all) != len(rows) {
		t.Errorf("%d reasons, %d rows; want len(all) = %v", len(all), len(rows), len(rows))
	}
	for _, m := range all {
		if !rows[m[1]] {
			t.Errorf("%s has no row", m[1])
		}
	}
}

func TestValuesThatAreNoJSON(t *testing.T) {
	t.Parallel()
	b, ok, err := cmp.ReadBytes(cmp.BytesValue([]byte{0, 255}))
	if !ok || err != nil || string(b) != "\x00\xff" {
		t.Errorf("ok = %v, want true; err = %v, want nil; string(b) = %q, want \"\\x00\\xff\"", ok, err, string(b))
	}
	digest := "sha256:" + strings.Repeat("a", 64)
	a, ok, err := cmp.ReadAsset(cmp.AssetValue(cmp.Asset{Digest: digest, Size: 3}))
	if !ok || err != nil || a.Digest != digest {
		t.Errorf("ok = %v, want true; err = %v, want nil; a.Digest = %q, want %q", ok, err, a.Digest, digest)
	}
	for _, in := range []string{`{"$bytes":"x","y":1}`, `{"y":1}`, `[]`, ``, `"$bytes"`} {
		if _, ok, _ := cmp.ReadBytes(json.RawMessage(in)); ok {
			t.Errorf("cmp.ReadBytes(json.RawMessage(in)): ok = true, want false; in = %q", in)
		}
	}
	for _, in := range []string{`{"$bytes":"*"}`, `{"$bytes":1}`} {
		if _, ok, err := cmp.ReadBytes(json.RawMessage(in)); !ok || err == nil {
			t.Errorf("cmp.ReadBytes(json.RawMessage(in)): ok = %v, want true; err = %v, want an error; in = %q", ok, err, in)
		}
	}
	for _, in := range []string{
		`{"$asset":{"digest":"md5:x"}}`, `{"$asset":{"digest":"` + digest + `","size":-1}}`,
		`{"$asset":{"digest":"` + digest + `","size":99999999999}}`, `{"$asset":4}`,
	} {
		if _, ok, err := cmp.ReadAsset(json.RawMessage(in)); !ok || err == nil {
			t.Errorf("cmp.ReadAsset(json.RawMessage(in)): ok = %v, want true; err = %v, want an error; in = %q", ok, err, in)
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for name, check := range map[string]func(string) error{
		"node": cmp.CheckNode, "function": cmp.CheckFunction, "skill": cmp.CheckSkill,
		"alias": cmp.CheckAlias,
	} {
		for _, in := range []string{"", "a\x00b", strings.Repeat("a", 300), "a\nb"} {
			if check(in) == nil {
				t.Errorf("%s %.20q; want check(in) not nil", name, in)
			}
		}
		if err := check("abc-1"); err != nil {
			t.Errorf(`check("abc-1") = %v, want nil; name = %q`, err, name)
		}
	}
	for _, in := range []string{"a>b", "a*", ".x", "a b"} {
		if cmp.CheckFunction(in) == nil || cmp.CheckNode(in) == nil || cmp.CheckSkill(in) == nil {
			t.Errorf("CheckFunction, CheckNode or CheckSkill of %q = nil, want an error", in)
		}
	}
	got, err := cmp.Labels([]string{" gpu", "user:a", "", "gpu"})
	if err != nil || fmt.Sprint(got) != "[gpu user:a]" {
		t.Errorf(`err = %v, want nil; fmt.Sprint(got) = %q, want "[gpu user:a]"`, err, fmt.Sprint(got))
	}
}

func FuzzArguments(f *testing.F) {
	for _, s := range []string{`{"args":[1]}`, `{"__args__":[],"__kwargs__":{"a":{"$bytes":"eA=="}}}`, `[[[]]]`, `"\ud800"`} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		a, err := cmp.ParseArguments(data)
		if err != nil {
			return
		}
		if out, err := jsonx.Marshal(a); err != nil || !jsonx.Valid(out) {
			t.Fatalf("%q: %s %v; want no error, jsonx.Valid(out)", data, out, err)
		}
		for _, v := range a.Kwargs {
			_, _, _ = cmp.ReadBytes(v)
			_, _, _ = cmp.ReadAsset(v)
		}
	})
}
