package storetest

import (
	"sync"
	"testing"

	"github.com/junctor-run/junctor/internal/nodes/admission"
)

func nodesClaimed(t *testing.T, s Stores) {
	a := admission.Node{ID: "a", Key: "UA", Token: "tok_1", Created: day(1)}
	for range 2 { // again is the same
		got, err := s.Nodes.ClaimNode(t.Context(), a)
		ok(t, err)
		same(t, got, a)
	}
	for _, other := range []admission.Node{
		{ID: "a", Key: "UB", Token: "tok_1"},
		{ID: "a", Token: "tok_2"},
		{ID: "b", Key: "UA", Token: "tok_2"},
	} {
		got, err := s.Nodes.ClaimNode(t.Context(), other)
		ok(t, err)
		same(t, got, a)
	}
	b := admission.Node{ID: "b", Token: "tok_2", Created: day(2)} // several may have no key
	c := admission.Node{ID: "c", Token: "tok_2", Created: day(3)}
	for _, n := range []admission.Node{c, b} {
		got, err := s.Nodes.ClaimNode(t.Context(), n)
		ok(t, err)
		same(t, got, n)
	}
	all, err := s.Nodes.Nodes(t.Context())
	ok(t, err)
	same(t, all, []admission.Node{a, b, c})
	got, found, err := s.Nodes.NodeByKey(t.Context(), "UA")
	ok(t, err)
	same(t, got, a)
	if _, none, err := s.Nodes.NodeByKey(t.Context(), ""); none || !found || err != nil {
		t.Error("no key is nobody's: ", none, found, err)
	}
	for _, moved := range []bool{true, false} {
		did, err := s.Nodes.MoveNode(t.Context(), "a", "tok_1", "tok_3")
		ok(t, err)
		same(t, did, moved)
	}
	got, _, err = s.Nodes.Node(t.Context(), "a")
	ok(t, err)
	same(t, got.Token, "tok_3")
	for _, was := range []bool{true, false} {
		did, err := s.Nodes.RemoveNode(t.Context(), "a")
		ok(t, err)
		same(t, did, was)
	}
	_, found, err = s.Nodes.Node(t.Context(), "a")
	ok(t, err)
	same(t, found, false)
}

func nodeRace(t *testing.T, s Stores) {
	var all sync.WaitGroup
	won := make([]admission.Node, 8)
	for i := range won {
		all.Go(func() {
			got, err := s.Nodes.ClaimNode(t.Context(), admission.Node{ID: "x", Key: "U" + string(rune('A'+i)), Token: "tok_1", Created: day(1)})
			if err != nil {
				t.Error(err)
			}
			won[i] = got
		})
	}
	all.Wait()
	for _, w := range won {
		same(t, w, won[0])
	}
}
