package ingest

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/internal/upstreams/upstream/record"
)

func defined(t *testing.T, name, description string) *Definition {
	t.Helper()
	d, err := Parse(Tool, json.RawMessage(fmt.Sprintf(`{"name":%q,"description":%q,"inputSchema":{"type":"object"}}`, name, description)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// TestWhatBecomesOfADefinition walks one definition through lists that an upstream sends,
// under each policy.
func TestWhatBecomesOfADefinition(t *testing.T) {
	t.Parallel()
	at := time.Unix(1, 0)
	for _, c := range []struct {
		trust, changed string
		lists          string // descriptions that are listed in turn, "-" for none, "!" for an approval
		states         string
		shown          string // at the end; "" none
		changes        string // h: held, p: another one was published
	}{
		{record.Trusted, record.Hold, "a", "published", "a", ""},
		{record.Trusted, record.Hold, "a b", "published held", "a", "h"},
		{record.Trusted, record.Hold, "a b b", "published held held", "a", "h"},
		{record.Trusted, record.Hold, "a b c", "published held held", "a", "hh"},
		{record.Trusted, record.Hold, "a b a", "published held published", "a", "h"},
		{record.Trusted, record.Hold, "a b !", "published held published", "b", "h"},
		{record.Trusted, record.Warn, "a b", "published published", "b", "p"},
		{record.Trusted, record.Follow, "a - b", "published published published", "b", "p"},
		{record.Trusted, record.Hold, "a -", "published published", "", ""},
		{record.Trusted, record.Hold, "a - b", "published published held", "a", "h"},
		{record.Untrusted, record.Hold, "a b", "quarantined quarantined", "", ""},
		{record.Untrusted, record.Hold, "a !", "quarantined published", "a", ""},
		{record.Untrusted, record.Hold, "a ! b", "quarantined published held", "a", "h"},
	} {
		set, rec := PinSet{}, &record.Record{Trust: c.trust, ChangedPin: c.changed}
		var states []string
		var changes string
		key := PinKey{Kind: Tool, Name: "t"}
		for step := range strings.FieldsSeq(c.lists) {
			var list []*Definition
			switch step {
			case "-":
			case "!":
				if !set[key].Approve() {
					t.Errorf("%v: nothing waits; want set[key].Approve()", c)
				}
				if d, waits := set[key].Waits(); waits {
					t.Errorf("%v: after the approval there waits %v; want waits = false", c, d)
				}
				states = append(states, string(set[key].State))
				continue
			default:
				list = append(list, defined(t, "t", step))
			}
			_, what := set.Reconcile(Tool, list, rec, at)
			for _, w := range what {
				changes += map[bool]string{true: "h", false: "p"}[w.Held]
			}
			states = append(states, string(set[key].State))
			if d, waits := set[key].Waits(); waits != (set[key].Listed && set[key].State != Published) || waits && len(d.Changes) == 0 {
				t.Errorf("%v: waits %v, %+v; want waits = (set[key].Listed && set[key].State != Published), not (waits && "+
					"len(d.Changes) == 0)", c, waits, d)
			}
			// What is saved is what is read again.
			if again := ReadPin(set[key].Pin); again.State != set[key].State || again.Visible() != set[key].Visible() || again.Key() != key {
				t.Errorf("%v: read again it is %+v; want again.State = set[key].State, again.Visible() = set[key].Visible(), "+
					"again.Key() = %v", c, again, key)
			}
		}
		if got := strings.Join(states, " "); got != c.states || changes != c.changes {
			t.Errorf("%v: %s, %s; want got = %v, changes = %v", c, got, changes, c.states, c.changes)
		}
		shown := ""
		if set[key].Visible() {
			shown = set[key].Shown.Description
		}
		if shown != c.shown {
			t.Errorf("%v: agents see %q; want shown = %v", c, shown, c.shown)
		}
	}
}

func TestWhatIsListedNoMoreIsForgottenAtLast(t *testing.T) {
	t.Parallel()
	set := PinSet{}
	for i := range maxGone + 3 {
		name := fmt.Sprintf("t%05d", i)
		set[PinKey{Tool, name}] = &PinRow{Pin: Pin{Kind: Tool, Name: name, State: Quarantined, Seen: time.Unix(int64(i), 0), Listed: i == 0}}
	}
	gone := set.Forget()
	if len(gone) != 2 || gone[0].Name != "t00001" || gone[1].Name != "t00002" || len(set) != maxGone+1 || set.Forget() != nil {
		t.Errorf(`%d are gone, %d are left; want len(gone) = 2, gone[0].Name = "t00001", gone[1].Name = "t00002", len(set) = `+
			"maxGone + 1, set.Forget() = nil", len(gone), len(set))
	}
	list := set.Sorted()
	if len(list) != len(set) || list[0].Name != "t00000" || list[1].Name != "t00003" {
		t.Errorf(`the order begins with %s, %s; want len(list) = %v, list[0].Name = "t00000", list[1].Name = "t00003"`,
			list[0].Name, list[1].Name, len(set))
	}
}

// An upstream cannot have the pin of a definition forgotten by listing many others, so that another definition
// under the name would count as new.
func TestAFloodOfDefinitionsDoesNotReplaceAPublishedOne(t *testing.T) {
	t.Parallel()
	rec := &record.Record{Trust: record.Trusted, ChangedPin: record.Hold}
	set, now := PinSet{}, time.Unix(0, 0)
	list := func(names ...*Definition) {
		now = now.Add(time.Second)
		set.Reconcile(Tool, names, rec, now)
		set.Forget()
	}
	victim := func(pin string) *Definition { return &Definition{Kind: Tool, Name: "victim", Pin: pin} }
	list(victim("approved"))
	for round := range 5 {
		junk := make([]*Definition, 0, 3000)
		for i := range 3000 {
			junk = append(junk, &Definition{Kind: Tool, Name: fmt.Sprintf("junk-%d-%d", round, i), Pin: "x"})
		}
		list(junk...)
	}
	list(victim("changed"))
	if p := set[PinKey{Tool, "victim"}]; p == nil || p.State != Held || p.Pin.Pin != "approved" {
		t.Errorf("victim = %+v, want it held with its approved definition", p)
	}
	list(&Definition{Kind: Tool, Name: "late", Pin: "x"})
	if p := set[PinKey{Tool, "late"}]; p.State != Quarantined {
		t.Errorf("a new definition after the flood is %s, want quarantined", p.State)
	}
	if most := maxPublished + maxGone + 1; len(set) > most {
		t.Errorf("%d pins are kept, want at most %d", len(set), most)
	}
}

func TestASavedFormThatCannotBeReadIsNotShown(t *testing.T) {
	t.Parallel()
	d := defined(t, "t", "a")
	for _, p := range []Pin{
		{Kind: Tool, Name: "t", State: Published, Listed: true, Pin: d.Pin, Definition: json.RawMessage(`{`)},
		{Kind: Tool, Name: "t", State: Published, Listed: true, Pin: "another", Definition: d.Published},
	} {
		if ReadPin(p).Visible() {
			t.Errorf("%+v is shown; want not ReadPin(p).Visible()", p)
		}
	}
	held := ReadPin(Pin{
		Kind: Tool, Name: "t", State: Held, Listed: true, Pin: d.Pin, Definition: d.Published, Offered: "x",
		OfferedDefinition: json.RawMessage(`[]`),
	})
	if !held.Visible() || held.Approve() {
		t.Error("what cannot be read was approved")
	}
}
