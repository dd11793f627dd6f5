package restserve_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

type published struct {
	Event     string
	Delivered int
	Results   []struct {
		Module, Endpoint, Invocation string
		OK, Handled                  bool
		Error                        *struct{ Code, Message string }
	}
}

func TestAnEventReachesEveryModuleThatDeclaresIt(t *testing.T) {
	st := newStack(t, "")
	st.offer("a", "keen", "", capability.StateReady, "BELL", "OTHER")
	st.offer("b", "broken", "", capability.StateReady, "BELL")
	st.offer("c", "away", "", capability.StateUnavailable, "BELL")
	st.offer("d", "dull", "", capability.StateReady, "BELL")
	st.offer("e", "deaf", "", capability.StateReady, "OTHER")
	var out published
	if status := st.do("POST", "/api/v1/events/publish", capability.RoleOperator, `{"event":"BELL","payload":{"n":9007199254740993}}`,
		&out); status != 200 || out.Event != "BELL" || out.Delivered != 2 {
		t.Fatalf(`%d %+v; want status = 200, out.Event = "BELL", out.Delivered = 2`, status, out)
	}
	type row struct {
		module, endpoint string
		ok, handled      bool
		code             string
	}
	var got []row
	for _, r := range out.Results {
		one := row{r.Module, r.Endpoint, r.OK, r.Handled, ""}
		if r.Error != nil {
			one.code = r.Error.Code
		}
		got = append(got, one)
		records, err := st.log.Query(t.Context(), audit.Query{Run: r.Invocation, Limit: 5})
		if err != nil || len(records) == 0 {
			t.Errorf("%s is not on record as %s: %v; want no error, len(records) other than 0", r.Module, r.Invocation, err)
		}
	}
	want := []row{
		{"away", "c", false, false, "unavailable"},
		{"broken", "b", false, false, "failed"},
		{"dull", "d", true, false, ""},
		{"keen", "a", true, true, ""},
	}
	if diff := cmp.Diff(want, got, cmp.AllowUnexported(row{})); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	const payload = `{"n":9007199254740993}`
	if diff := cmp.Diff(map[string]string{"keen": payload, "broken": payload, "dull": payload}, st.told); diff != "" {
		t.Errorf("told (-want +got):\n%s", diff)
	}
}

func TestPublishingRefusesWhatIsNoEvent(t *testing.T) {
	st := newStack(t, "")
	st.offer("a", "keen", "", capability.StateReady, "BELL")
	for _, test := range []struct {
		name, body string
		as         capability.Role
		status     int
	}{
		{"no token", `{"event":"BELL"}`, "", 401},
		{"an agent", `{"event":"BELL"}`, capability.RoleAgent, 403},
		{"no event", `{}`, capability.RoleOperator, 400},
		{"a blank event", `{"event":" "}`, capability.RoleOperator, 400},
		{"a payload that is not an object", `{"event":"BELL","payload":[1]}`, capability.RoleOperator, 400},
		{"an unknown field", `{"event":"BELL","to":"keen"}`, capability.RoleOperator, 400},
		{"no JSON", `BELL`, capability.RoleOperator, 400},
		{"a large body", `{"event":"BELL","payload":{"x":"` + strings.Repeat("x", 1<<16) + `"}}`, capability.RoleOperator, 413},
	} {
		if status := st.do("POST", "/api/v1/events/publish", test.as, test.body, nil); status != test.status {
			t.Errorf("%s: %d, want %d", test.name, status, test.status)
		}
	}
	if len(st.told) != 0 {
		t.Errorf("a refused event was delivered: %v; want len(st.told) = 0", st.told)
	}
	var out published
	if status := st.do("POST", "/api/v1/events/publish", capability.RoleAdmin, `{"event":"NOBODY"}`, &out); status != 200 ||
		out.Delivered != 0 || out.Results == nil {
		t.Errorf("an event nobody declares: %d %+v; want status = 200, out.Delivered = 0, out.Results not nil", status, out)
	}
	if status := st.do("POST", "/api/v1/events/publish", capability.RoleAdmin, `{"event":"BELL"}`, &out); status != 200 ||
		st.told["keen"] != "{}" {
		t.Errorf(`no payload: %d, told %v; want status = 200, st.told["keen"] = "{}"`, status, st.told)
	}
}
