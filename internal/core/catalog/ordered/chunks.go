package ordered

import "iter"

// Chunks yields the list in pieces with the digest of each. A result computed from a piece is
// valid for every list that has a piece with that digest. The items must not be changed.
func (l List[T]) Chunks() iter.Seq2[Sum, []T] {
	return func(yield func(Sum, []T) bool) {
		for _, c := range l.chunks {
			if !yield(c.sum, c.items) {
				return
			}
		}
	}
}
