package routerserve

import (
	"encoding/json"
	"testing"
)

// TestParametersPassAsTheBytesTheyAre: what the codec lets through, a lone
// surrogate or a huge number included, is only cut out, never read.
func TestParametersPassAsTheBytesTheyAre(t *testing.T) {
	t.Parallel()
	state := `{"b":9007199254740993,"a":1.10,"huge":1e400,"s":"\ud800","z":"\u0000"}`
	p, err := parseParams(json.RawMessage(`{"moduleId":"m" , "state" : ` + state + `,"provider":"P"}`))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(p.raw("state")); got != state {
		t.Errorf("state is %s; want got = %v", got, state)
	}
	if p.text("moduleId") != "m" || p.text("provider") != "P" || p.text("state") != "" {
		t.Errorf(`names %q; want p.text("moduleId") = "m", p.text("provider") = "P", p.text("state") = ""`, p.names)
	}
	if got := string(p.without("moduleId", "provider")); got != `{"state":`+state+`}` {
		t.Errorf("without: %s; want got = `{\"state\":` + state + `}`", got)
	}
	if got := string(p.without("nothing")); got != string(p.whole) {
		t.Errorf("nothing to leave out, yet %s; want got = %v", got, string(p.whole))
	}
	if _, err := parseParams(json.RawMessage(`[]`)); err == nil {
		t.Error("an array passes for an object; want an error")
	}
}
