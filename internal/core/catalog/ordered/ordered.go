// Package ordered implements the persistent sorted list of the catalog. An update makes a new
// list that shares all unchanged chunks with the old one, so that its cost depends on the
// number of changed items. A chunk ends at an item whose digest marks a boundary, so lists
// of equal items have equal chunks and equal digests, whatever updates led to them.
package ordered

import (
	"crypto/sha256"
	"iter"
	"slices"
	"sort"
)

// Sum is the content digest of an item.
type Sum [sha256.Size]byte

// Order defines the order of items and the digest of their content. Compare must be a total
// order; items that compare equal are versions of the same item.
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

// Len returns the number of items.
func (l List[T]) Len() int { return l.n }

// ends reports whether an item with that digest ends a chunk, which one of 128 does.
func ends(s Sum) bool { return s[0] == 0 || s[0] == 1 }

// Update returns the list without the items that compare equal to one of remove, and with the
// items of add, each of which replaces an item that compares equal. An item in both lists is
// added. Both must be sorted and free of repetitions. l is unchanged.
// It costs O(touched chunks + number of chunks).
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
		// Items left over from the previous chunk may have lost their boundary.
		open = out.append(o, open, merged, false)
	}
	return out
}

// append appends open and items to the list in chunks, and returns the items after the last
// boundary. If end, those become the last chunk and it returns nil.
func (l *List[T]) append(o Order[T], open, items []T, end bool) (rest []T) {
	// The slice must be newly allocated, because chunks keep parts of it.
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

// add appends one chunk with the items, and their digest.
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

// merge returns the sorted items without remove and with add. An item of add replaces an
// equal one, also one that is in remove.
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

// Digest returns a digest of the items' content and order.
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

// From yields the items from the first one for which compare is not negative. compare returns
// the position of an item relative to the sought one.
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

// Range appends to dst the items for which compare is zero, which must be adjacent.
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
