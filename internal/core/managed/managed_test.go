package managed_test

import (
	"slices"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/managed"
)

func TestOnlyTheGatewayOfTheFileOwnsAnObject(t *testing.T) {
	t.Parallel()
	mark := &managed.Mark{File: "config.d/a.yaml", Gateway: "one"}
	for _, c := range []struct {
		mark    *managed.Mark
		gateway string
		want    bool
	}{{mark, "one", true}, {mark, "two", false}, {mark, "", true}, {&managed.Mark{}, "one", false}, {nil, "", false}} {
		if got := c.mark.OwnedBy(c.gateway); got != c.want {
			t.Errorf("%+v.OwnedBy(%q) = %v, want %v", c.mark, c.gateway, got, c.want)
		}
	}
	var none *managed.Mark
	if err := none.Refuse("x", "it"); err != nil {
		t.Errorf("Refuse without a mark = %v, want nil", err)
	}
	if e := capability.AsError(mark.Refuse("x", "it")); e.Code != capability.CodeConflict || e.Reason != managed.Reason ||
		e.Message != "it is managed by config.d/a.yaml; change it there" || e.Hint == "" {
		t.Errorf("Refuse = %+v, want a conflict that names the file", e)
	}
}

func TestRecordsAreComparedByTheirMembers(t *testing.T) {
	t.Parallel()
	type record struct {
		A       string        `json:"a,omitempty"`
		B       int           `json:"b,omitempty"`
		Managed *managed.Mark `json:"managed,omitempty"`
	}
	one := func(file, gateway string) *managed.Mark { return &managed.Mark{File: file, Gateway: gateway} }
	for _, c := range []struct {
		have, want record
		members    []string
	}{
		{record{"x", 1, one("f", "one")}, record{"x", 1, one("f", "one")}, nil},
		{record{"x", 1, one("f", "one")}, record{"x", 1, one("f", "two")}, nil},
		{record{"x", 1, one("f", "one")}, record{"x", 1, one("f", "")}, nil},
		{record{"x", 1, one("f", "")}, record{"x", 1, one("f", "two")}, []string{"managed"}},
		{record{"x", 0, one("f", "")}, record{"", 1, one("g", "")}, []string{"a", "b", "managed"}},
	} {
		d, err := managed.Compare(c.have, c.want, c.have.Managed, c.want.Managed)
		if err != nil || !d.Exists || !slices.Equal(d.Members, c.members) {
			t.Errorf("Compare(%+v, %+v) = %+v, %v; want %v", c.have, c.want, d, err, c.members)
		}
	}
}
