// Package search finds actions by words: BM25 over their names, aliases, titles,
// argument names, provider labels, descriptions and tags, each weighed by its own length. Words are
// compared without their endings, and verbs of one meaning are one word. An action whose name has words
// that were not asked for comes after one whose name has none. It searches only one compiled
// agent catalog, so it cannot find an action that the context may not use. The index of a
// chunk is shared by all catalogs with that chunk, so that the cost of a change depends on
// the number of changed tools and not on the size of the catalog.
package search

import (
	"cmp"
	"container/heap"
	"math"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/junctor-run/junctor/internal/core/catalog/compile"
	"github.com/junctor-run/junctor/internal/core/catalog/ordered"
)

// Weights of the fields.
const (
	weightName        = 3
	weightAlias       = 2
	weightTitle       = 2
	weightArgument    = 1
	weightLabel       = 1
	weightDescription = 1.5
	weightTag         = 1
)

// Usual numbers of words, of published tools.
const (
	usualName        = 3
	usualDescription = 12
)

// unasked is the part of a score that an action loses if none of the words of its name are in the query.
const unasked = 0.5

// Index searches agent catalogs. The zero value is ready to use; it is safe for concurrent
// use. It caches pieces of at most 400,000 actions and evicts the least recently used
// catalogs first.
type Index struct {
	mu     sync.Mutex
	clock  uint64
	pieces map[ordered.Sum]*piece
	docs   int              // in pieces
	books  map[string]*book // by etag
}

// book holds the pieces of one catalog and the values computed over all of them.
type book struct {
	pieces []*piece
	docs   int
	used   uint64
}

// Hit is a found action.
type Hit struct {
	Action *compile.Action
	Score  float64 // 0 for select:
}

// Search returns the actions that match the query best, at most limit (0 means 10, or 15
// in a catalog of more than 20,000; the maximum is 20). Equal scores are ordered by name. The
// query "select:name1,name2" returns the existing ones of these names instead, in the given
// order, each once. If among is not nil, only actions for which it returns true are considered.
func (ix *Index) Search(a *compile.Agent, query string, limit int, sp compile.Spelling, among func(*compile.Action) bool) []Hit {
	if limit <= 0 {
		if limit = DefaultResults; a.Len() > manyActions {
			limit = defaultFromMany
		}
	}
	limit = min(limit, MaxResults)
	if names, ok := strings.CutPrefix(strings.TrimSpace(query), "select:"); ok {
		return pick(a, names, limit, sp, among)
	}
	terms := tokens(nil, query)
	slices.Sort(terms)
	if terms = slices.Compact(terms); len(terms) > maxTerms {
		terms = terms[:maxTerms]
	}
	if len(terms) == 0 || a.Len() == 0 {
		return nil
	}
	return ix.book(a).search(a, terms, limit, among)
}

func pick(a *compile.Agent, names string, limit int, sp compile.Spelling, among func(*compile.Action) bool) []Hit {
	var out []Hit
	for name := range strings.SplitSeq(names, ",") {
		x, ok := sp.Read(a, strings.TrimSpace(name))
		if !ok || among != nil && !among(x) || slices.ContainsFunc(out, func(h Hit) bool { return h.Action == x }) {
			continue
		}
		if out = append(out, Hit{Action: x}); len(out) == limit {
			break
		}
	}
	return out
}

// book returns the book of a catalog, from the cache or made of cached and newly read pieces.
func (ix *Index) book(a *compile.Agent) *book {
	ix.mu.Lock()
	ix.clock++
	if known := ix.books[a.Etag()]; known != nil {
		known.used = ix.clock
		ix.mu.Unlock()
		return known
	}
	now := ix.clock
	out := &book{used: now}
	type gap struct {
		at      int
		sum     ordered.Sum
		actions []*compile.Action
	}
	var gaps []gap
	for sum, actions := range a.Chunks() {
		p := ix.pieces[sum]
		if p == nil {
			gaps = append(gaps, gap{len(out.pieces), sum, actions})
		} else {
			p.used = now
		}
		out.pieces = append(out.pieces, p)
	}
	ix.mu.Unlock()

	// Two callers may read the same piece. The second result is dropped, and neither waits.
	var next atomic.Int64
	work := func() {
		for {
			i := int(next.Add(1)) - 1
			if i >= len(gaps) {
				return
			}
			out.pieces[gaps[i].at] = read(gaps[i].actions)
		}
	}
	var wg sync.WaitGroup
	for range min(len(gaps)/16, runtime.GOMAXPROCS(0)-1) {
		wg.Go(work)
	}
	work()
	wg.Wait()
	for _, p := range out.pieces {
		out.docs += len(p.names)
	}

	ix.mu.Lock()
	defer ix.mu.Unlock()
	if ix.books == nil {
		ix.books, ix.pieces = make(map[string]*book), make(map[ordered.Sum]*piece)
	}
	for _, g := range gaps {
		if ix.pieces[g.sum] == nil {
			p := out.pieces[g.at]
			p.used = now
			ix.pieces[g.sum] = p
			ix.docs += len(p.names)
		}
	}
	ix.books[a.Etag()] = out
	ix.evict()
	return out
}

// evict removes the least recently used books until the bounds hold, but never the last one.
// Pieces that only a removed book used stay cached as long as maxDocs permits.
func (ix *Index) evict() {
	for len(ix.books) > 1 && (len(ix.books) > maxBooks || ix.docs > maxDocs) {
		oldest := ""
		for etag, bk := range ix.books {
			if oldest == "" || bk.used < ix.books[oldest].used {
				oldest = etag
			}
		}
		delete(ix.books, oldest)
		if len(ix.books) > maxBooks || ix.docs <= maxDocs {
			continue
		}
		kept := make(map[*piece]bool)
		for _, bk := range ix.books {
			for _, p := range bk.pieces {
				kept[p] = true
			}
		}
		for sum, p := range ix.pieces {
			if !kept[p] {
				delete(ix.pieces, sum)
				ix.docs -= len(p.names)
			}
		}
	}
}

// search returns the best actions that contain any of the terms. It processes rare terms first.
// Once common terms alone cannot reach the best results so far, they are only looked up for
// actions that also contain a rare term. The result equals that of scoring every action.
func (bk *book) search(a *compile.Agent, terms []string, limit int, among func(*compile.Action) bool) []Hit {
	list := bk.wanted(terms)
	best := &hits{}
	var scores []float64
	var named []uint8
	at := -1
	for _, actions := range a.Chunks() {
		at++
		floor := 0.0 // lower scores are ignored
		leading := len(list)
		if len(*best) == limit {
			floor = (*best)[0].Score
			for leading > 0 && list[leading-1].most < floor {
				leading-- // the terms from here on cannot reach the floor by themselves
			}
		}
		if scores, named = bk.score(scores, named, at, len(actions), list, leading, floor); len(scores) == 0 {
			continue
		}
		for k, n := range bk.pieces[at].names { // a name with words that were not asked for is one of something else
			scores[k] *= 1 - unasked*float64(n-named[k])/float64(max(n, 1))
		}
		for k, score := range scores {
			full := len(*best) == limit && score < (*best)[0].Score
			if score > 0 && score >= floor && !full && (among == nil || among(actions[k])) {
				best.offer(Hit{actions[k], score}, limit)
			}
		}
	}
	return best.sorted()
}

// score returns the score of each of the n actions of a piece, and how many words of its name were asked
// for; or an empty slice if none can reach floor. It reuses scores and named.
func (bk *book) score(scores []float64, named []uint8, at, n int, list []wanted, leading int, floor float64) ([]float64, []uint8) {
	scores = scores[:0]
	for i := range list {
		w := &list[i]
		posts := w.posts[at]
		if i >= leading && (len(scores) == 0 || slices.Max(scores)+w.most < floor) {
			return scores[:0], named
		}
		if len(posts) == 0 {
			continue
		}
		if len(scores) == 0 {
			scores, named = slices.Grow(scores, n)[:n], slices.Grow(named[:0], n)[:n]
			clear(scores)
			clear(named)
		}
		for _, post := range posts {
			if i >= leading && scores[post.doc] == 0 {
				continue
			}
			tf := float64(post.weight)
			scores[post.doc] += w.weight * tf * (k1 + 1) / (tf + k1)
			if post.named && named[post.doc] < maxNameWords {
				named[post.doc]++
			}
		}
	}
	return scores, named
}

// wanted is one term of a query.
type wanted struct {
	weight float64  // inverse document frequency
	most   float64  // upper bound of what this and all later terms can add to a score
	posts  [][]post // by piece
}

// wanted returns the terms that occur in the catalog, the rarest first.
func (bk *book) wanted(terms []string) []wanted {
	list := make([]wanted, 0, len(terms))
	for _, term := range terms {
		n := 0
		var w wanted
		for at, p := range bk.pieces {
			if posts := p.posts(term); len(posts) > 0 {
				if w.posts == nil {
					w.posts = make([][]post, len(bk.pieces))
				}
				w.posts[at] = posts
				n += len(posts)
			}
		}
		if n > 0 {
			w.weight = math.Log(1 + (float64(bk.docs)-float64(n)+0.5)/(float64(n)+0.5))
			list = append(list, w)
		}
	}
	slices.SortStableFunc(list, func(x, y wanted) int { return cmp.Compare(y.weight, x.weight) })
	most := 0.0
	for i := len(list) - 1; i >= 0; i-- {
		most += list[i].weight * (k1 + 1)
		list[i].most = most * 1.000001 // sums of floats depend on their order
	}
	return list
}

// hits is a heap of the best results, with the worst of them on top.
type hits []Hit

// worse orders hits from worst to best: by score, then by descending name.
func worse(x, y Hit) int {
	return cmp.Or(cmp.Compare(x.Score, y.Score), cmp.Compare(y.Action.Name, x.Action.Name))
}

func (h hits) Len() int           { return len(h) }
func (h hits) Less(i, j int) bool { return worse(h[i], h[j]) < 0 }
func (h hits) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }
func (h *hits) Push(x any)        { *h = append(*h, x.(Hit)) }
func (h *hits) Pop() any {
	old := *h
	x := old[len(old)-1]
	*h = old[:len(old)-1]
	return x
}

func (h *hits) offer(x Hit, limit int) {
	if len(*h) < limit {
		heap.Push(h, x)
	} else if worse((*h)[0], x) < 0 {
		(*h)[0] = x
		heap.Fix(h, 0)
	}
}

func (h *hits) sorted() []Hit {
	out := []Hit(*h)
	slices.SortFunc(out, func(x, y Hit) int { return worse(y, x) })
	return out
}
