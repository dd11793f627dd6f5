package diff

import (
	"context"
	"strings"
)

// op is one change: the lines a[a0:a1] were replaced by b[b0:b1]. Between two ops the texts
// are equal.
type op struct{ a0, a1, b0, b1 int }

// checkEvery is the number of steps between two checks of the context.
const checkEvery = 64

// split splits a text into lines that keep their line feeds; the last may lack one.
func split(text string) []string {
	if text == "" {
		return nil
	}
	lines := strings.SplitAfter(text, "\n")
	if lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// compare returns the changes that turn a into b: Myers' shortest edit script in linear
// space, by bidirectional search for its middle (An O(ND) Difference Algorithm, 1986, §4b).
// Lines that only one text has are removed first, because they cannot match. The only error
// is ctx's.
func compare(ctx context.Context, a, b []string) ([]op, error) {
	numbers := make(map[string]int)
	number := func(lines []string) []int {
		out := make([]int, len(lines))
		for i, l := range lines {
			n, ok := numbers[l]
			if !ok {
				n = len(numbers)
				numbers[l] = n
			}
			out[i] = n
		}
		return out
	}
	s := &script{ctx: ctx, deleted: make([]bool, len(a)), inserted: make([]bool, len(b))}
	x, y := number(a), number(b)
	s.a, s.aAt = common(x, y, len(numbers), s.deleted)
	s.b, s.bAt = common(y, x, len(numbers), s.inserted)
	if err := s.between(0, len(s.a), 0, len(s.b)); err != nil {
		return nil, err
	}
	return s.ops(), nil
}

// common returns the elements of x that y contains, and their indexes in x. For the others
// it sets gone. All elements are less than n.
func common(x, y []int, n int, gone []bool) (kept, at []int) {
	in := make([]bool, n)
	for _, v := range y {
		in[v] = true
	}
	for i, v := range x {
		if in[v] {
			kept, at = append(kept, v), append(at, i)
		} else {
			gone[i] = true
		}
	}
	return kept, at
}

// script is the state of one comparison. Lines are represented by numbers, equal lines by
// equal numbers.
type script struct {
	ctx               context.Context
	a, b              []int // without the lines that only one text has
	aAt, bAt          []int // the indexes of these lines in the texts
	deleted, inserted []bool
	forward, backward []int // the furthest point reached on each diagonal
	steps             int
}

// between marks the lines to delete and insert to turn a[a0:a1] into b[b0:b1].
func (s *script) between(a0, a1, b0, b1 int) error {
	for {
		for a0 < a1 && b0 < b1 && s.a[a0] == s.b[b0] {
			a0++
			b0++
		}
		for a0 < a1 && b0 < b1 && s.a[a1-1] == s.b[b1-1] {
			a1--
			b1--
		}
		if a0 == a1 || b0 == b1 {
			s.replace(a0, a1, b0, b1)
			return nil
		}
		x, y, found, err := s.middle(a0, a1, b0, b1)
		switch {
		case err != nil:
			return err
		case !found:
			s.replace(a0, a1, b0, b1)
			return nil
		}
		// Recurse for the first half (the depth is logarithmic in the edits) and loop for
		// the second.
		if err := s.between(a0, x, b0, y); err != nil {
			return err
		}
		a0, b0 = x, y
	}
}

// replace marks all lines of a[a0:a1] as deleted and all of b[b0:b1] as inserted.
func (s *script) replace(a0, a1, b0, b1 int) {
	for i := a0; i < a1; i++ {
		s.deleted[s.aAt[i]] = true
	}
	for i := b0; i < b1; i++ {
		s.inserted[s.bAt[i]] = true
	}
}

// middle returns a point about halfway on a shortest path from (a0,b0) to (a1,b1). found is
// false if the path has more than maxCost edits. The only error is the context's.
func (s *script) middle(a0, a1, b0, b1 int) (x, y int, found bool, err error) {
	n, m := a1-a0, b1-b0
	limit := min((n+m+1)/2, maxCost/2)
	size := 2*limit + 3
	if len(s.forward) < size {
		s.forward, s.backward = make([]int, size), make([]int, size)
	}
	f, b := s.forward[:size], s.backward[:size]
	for i := range f {
		f[i], b[i] = -1, -1
	}
	offset := limit + 1
	f[offset+1], b[offset+1] = 0, 0
	delta := n - m
	odd := delta%2 != 0
	// Diagonals that have left the grid are no longer followed.
	var fLow, fHigh, bLow, bHigh int
	for d := 0; d <= limit; d++ {
		if s.steps++; s.steps%checkEvery == 0 && s.ctx.Err() != nil {
			return 0, 0, false, s.ctx.Err()
		}
		for k := -d + fLow; k <= d-fHigh; k += 2 {
			x := next(f, offset, k, d)
			y := x - k
			for x < n && y < m && s.a[a0+x] == s.b[b0+y] {
				x++
				y++
			}
			f[offset+k] = x
			switch r := offset + delta - k; {
			case x > n:
				fHigh += 2
			case y > m:
				fLow += 2
			case odd && r >= 0 && r < size && b[r] >= 0 && b[r] <= n && x+b[r] >= n:
				return a0 + x, b0 + y, true, nil
			}
		}
		for k := -d + bLow; k <= d-bHigh; k += 2 {
			x := next(b, offset, k, d)
			y := x - k
			for x < n && y < m && s.a[a1-1-x] == s.b[b1-1-y] {
				x++
				y++
			}
			b[offset+k] = x
			switch r := offset + delta - k; {
			case x > n:
				bHigh += 2
			case y > m:
				bLow += 2
			case !odd && r >= 0 && r < size && f[r] >= 0 && f[r] <= n && f[r]-(delta-k) <= m && x+f[r] >= n:
				return a0 + f[r], b0 + f[r] - (delta - k), true, nil
			}
		}
	}
	return 0, 0, false, nil
}

// next returns the furthest x on diagonal k after edit d, before matching lines are
// followed.
func next(v []int, offset, k, d int) int {
	if k == -d || k != d && v[offset+k-1] < v[offset+k+1] {
		return v[offset+k+1]
	}
	return v[offset+k-1] + 1
}

// ops converts the marks to changes, each as long as possible.
func (s *script) ops() []op {
	var out []op
	i, j := 0, 0
	for i < len(s.deleted) || j < len(s.inserted) {
		o := op{a0: i, b0: j}
		for i < len(s.deleted) && s.deleted[i] {
			i++
		}
		for j < len(s.inserted) && s.inserted[j] {
			j++
		}
		if o.a1, o.b1 = i, j; o.a0 < o.a1 || o.b0 < o.b1 {
			out = append(out, o)
			continue
		}
		i++
		j++
	}
	return out
}
