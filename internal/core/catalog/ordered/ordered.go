// Package ordered is the persistent sorted list under the catalog: an update
// makes a new list that shares all but the chunks it touched with the old one,
// so that a change of fifty entries among a hundred thousand costs what fifty
// entries cost. Where a chunk ends is decided by the content of its last item,
// never by history: two lists of equal items have equal chunks and an equal
// digest, however they came to be.
package ordered

import (
	"crypto/sha256"
	"iter"
	"slices"
	"sort"
)

// Sum is the content digest of an item.
type Sum [sha256.Size]byte

// Order states how items of a list compare and what their content is. Compare must
// be total: items that compare equal are the same item in two versions.
type Order[T any] struct {
	Compare func(a, b T) int
	Sum     func(T) Sum
}

type chunk[T any] struct {
	items []T
	sum   Sum
}

// List is immutable; the zero value is empty. It is safe for concurrent use.
type List[T any] struct {
	chunks []*chunk[T]
	n      int
}

// Len is the number of items.
func (l List[T]) Len() int { return l.n }

// ends reports whether an item of that content is the last of its chunk: one of
// 128 is.
func ends(s Sum) bool { return s[0] == 0 || s[0] == 1 }

// Update returns the list without the items that compare equal to one of remove,
// and with add; an item of add replaces one that compares equal. Both must be
// sorted and free of repetitions. It costs O(touched chunks + number of chunks).
func (o Order[T]) Update(l List[T], remove, add []T) List[T] {
	if len(remove) == 0 && len(add) == 0 {
		return l
	}
	out := List[T]{chunks: make([]*chunk[T], 0, len(l.chunks)+1)}
	var open []T // items after the last finished chunk
	i := 0
	for i < len(l.chunks) || len(add) > 0 || len(open) > 0 {
		if i == len(l.chunks) { // behind the last chunk
			out.append(o, open, add, true)
			break
		}
		c := l.chunks[i]
		last := c.items[len(c.items)-1]
		i++
		touchedBy := func(list []T) int {
			return sort.Search(len(list), func(k int) bool { return o.Compare(list[k], last) > 0 })
		}
		r, a := touchedBy(remove), touchedBy(add)
		if i == len(l.chunks) && !ends(o.Sum(last)) {
			a = len(add) // the last chunk ended with the list, not with a boundary
		}
		if r == 0 && a == 0 && len(open) == 0 {
			out.chunks = append(out.chunks, c)
			out.n += len(c.items)
			continue
		}
		merged := o.merge(c.items, remove[:r], add[:a])
		remove, add = remove[r:], add[a:]
		// The items before this chunk's boundary may have lost theirs.
		open = out.append(o, open, merged, false)
	}
	return out
}

// append cuts the items into chunks and keeps what has no boundary yet, unless
// it is the end of the list.
func (l *List[T]) append(o Order[T], open, items []T, end bool) (rest []T) {
	// The slice must be its own: chunks keep parts of it.
	all := append(slices.Clip(open), items...)
	start := 0
	for k := range all {
		if ends(o.Sum(all[k])) {
			l.add(o, all[start:k+1:k+1])
			start = k + 1
		}
	}
	if end && start < len(all) {
		l.add(o, all[start:])
		return nil
	}
	return all[start:]
}

func (l *List[T]) add(o Order[T], items []T) {
	h := sha256.New()
	for k := range items {
		s := o.Sum(items[k])
		_, _ = h.Write(s[:])
	}
	c := &chunk[T]{items: items}
	h.Sum(c.sum[:0])
	l.chunks = append(l.chunks, c)
	l.n += len(items)
}

func (o Order[T]) merge(items, remove, add []T) []T {
	out := make([]T, 0, len(items)+len(add))
	for _, it := range items {
		for len(add) > 0 && o.Compare(add[0], it) < 0 {
			out, add = append(out, add[0]), add[1:]
		}
		if len(add) > 0 && o.Compare(add[0], it) == 0 {
			out, add = append(out, add[0]), add[1:]
			continue
		}
		for len(remove) > 0 && o.Compare(remove[0], it) < 0 {
			remove = remove[1:]
		}
		if len(remove) > 0 && o.Compare(remove[0], it) == 0 {
			continue
		}
		out = append(out, it)
	}
	return append(out, add...)
}

// Digest is a function of the items' content and order alone.
func (l List[T]) Digest() Sum {
	h := sha256.New()
	for _, c := range l.chunks {
		_, _ = h.Write(c.sum[:])
	}
	var s Sum
	h.Sum(s[:0])
	return s
}

// All yields every item in order.
func (l List[T]) All() iter.Seq[T] {
	return func(yield func(T) bool) {
		for _, c := range l.chunks {
			for _, it := range c.items {
				if !yield(it) {
					return
				}
			}
		}
	}
}

// From yields the items from the first one for which compare is not negative;
// compare(item) tells how an item stands to what is sought.
func (l List[T]) From(compare func(T) int) iter.Seq[T] {
	return func(yield func(T) bool) {
		first := sort.Search(len(l.chunks), func(i int) bool {
			items := l.chunks[i].items
			return compare(items[len(items)-1]) >= 0
		})
		for i, c := range l.chunks[first:] {
			items := c.items
			if i == 0 {
				items = items[sort.Search(len(items), func(k int) bool { return compare(items[k]) >= 0 }):]
			}
			for _, it := range items {
				if !yield(it) {
					return
				}
			}
		}
	}
}

// Range appends to dst the items for which compare is zero. They must stand
// together.
func (l List[T]) Range(dst []T, compare func(T) int) []T {
	for it := range l.From(compare) {
		if compare(it) != 0 {
			break
		}
		dst = append(dst, it)
	}
	return dst
}

// Find returns the first item for which compare is zero.
func (l List[T]) Find(compare func(T) int) (found T, ok bool) {
	for it := range l.From(compare) {
		return it, compare(it) == 0
	}
	return found, false
}
