package ordered_test

import (
	"cmp"
	"crypto/sha256"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

type item struct {
	key  int
	text string
}

func order() ordered.Order[item] {
	return ordered.Order[item]{
		Compare: func(a, b item) int { return cmp.Compare(a.key, b.key) },
		Sum:     func(it item) ordered.Sum { return sha256.Sum256(fmt.Appendf(nil, "%d %s", it.key, it.text)) },
	}
}

func sorted(m map[int]item) []item {
	var out []item
	for _, it := range m {
		out = append(out, it)
	}
	slices.SortFunc(out, order().Compare)
	return out
}

func TestAListIsAFunctionOfItsItems(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(1, 2))
	o := order()
	var list ordered.List[item]
	held := make(map[int]item)
	for round := range 400 {
		var remove, add []item
		touched := make(map[int]item)
		for range rng.IntN(30) {
			touched[rng.IntN(3000)] = item{}
		}
		for key := range touched {
			switch _, has := held[key]; {
			case has && rng.IntN(2) == 0:
				remove = append(remove, held[key])
				delete(held, key)
			default:
				held[key] = item{key, fmt.Sprint(rng.IntN(9))}
				add = append(add, held[key])
			}
		}
		if rng.IntN(20) == 0 { // what is not there cannot be removed
			remove = append(remove, item{key: 5000})
		}
		slices.SortFunc(remove, o.Compare)
		slices.SortFunc(add, o.Compare)
		before, digest := slices.Collect(list.All()), list.Digest()
		next := o.Update(list, remove, add)
		if !slices.Equal(slices.Collect(list.All()), before) || list.Digest() != digest {
			t.Fatalf("an update changed the list it began with; want slices.Collect(list.All()) = %v, list.Digest() = %v",
				before, digest)
		}
		list = next
		whole := o.Update(ordered.List[item]{}, nil, sorted(held))
		if !slices.Equal(slices.Collect(list.All()), sorted(held)) || list.Len() != len(held) || list.Digest() != whole.Digest() {
			t.Fatalf("round %d: %d items, want %d", round, list.Len(), len(held))
		}
		for range 5 {
			key := rng.IntN(3000)
			got, ok := list.Find(func(it item) int { return cmp.Compare(it.key, key) })
			if want, has := held[key]; has != ok || has && got != want {
				t.Fatalf("%d: %v %v; want has = %v, not (has && got != want)", key, got, ok, ok)
			}
		}
		low, high := rng.IntN(1500), 1500+rng.IntN(1500)
		got := list.Range(nil, func(it item) int {
			switch {
			case it.key < low:
				return -1
			case it.key >= high:
				return 1
			}
			return 0
		})
		want := slices.DeleteFunc(sorted(held), func(it item) bool { return it.key < low || it.key >= high })
		if !slices.Equal(got, want) {
			t.Fatalf("%d to %d: %d items, want %d", low, high, len(got), len(want))
		}
	}
	if empty := o.Update(list, sorted(held), nil); empty.Len() != 0 || empty.Digest() != (ordered.List[item]{}).Digest() {
		t.Error("not empty; want empty.Len() = 0, empty.Digest() = (ordered.List[item]{}).Digest()")
	}
}

func BenchmarkUpdateFiftyOf100000(b *testing.B) {
	type summed struct {
		key int
		sum ordered.Sum
	}
	o := ordered.Order[*summed]{
		Compare: func(a, b *summed) int { return cmp.Compare(a.key, b.key) },
		Sum:     func(it *summed) ordered.Sum { return it.sum },
	}
	make1 := func(key, n int) *summed { return &summed{key, sha256.Sum256(fmt.Append(nil, key, n))} }
	var all []*summed
	for i := range 100_000 {
		all = append(all, make1(i, 0))
	}
	list := o.Update(ordered.List[*summed]{}, nil, all)
	b.ReportAllocs()
	for n := 1; b.Loop(); n++ {
		add := make([]*summed, 0, 50)
		for i := range 50 {
			add = append(add, make1(i*2000+n%2000, n))
		}
		list = o.Update(list, nil, add)
	}
	b.ReportMetric(float64(list.Len()), "items")
}
