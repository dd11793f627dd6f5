package restserve

import (
	"net/http"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// page is a part of a list: limit items from a cursor on, or all without a limit. A cursor is valid
// only for the generation in which it was created, because positions change with the catalog.
type page struct {
	generation  uint64
	from, limit int
	seen        int
}

// pageOf parses limit and cursor. Errors: invalid_input; conflict, reason stale_cursor,
// if the cursor is of another generation.
func pageOf(r *http.Request, generation uint64) (*page, error) {
	limit, err := httpapi.Number(r, "limit", 0, 1, maxPage)
	if err != nil {
		return nil, err
	}
	p := &page{generation: generation, limit: limit}
	cursor := r.URL.Query().Get("cursor")
	if cursor == "" {
		return p, nil
	}
	made, place, _ := strings.Cut(cursor, ".")
	g, err := strconv.ParseUint(made, 10, 64)
	n, err2 := strconv.Atoi(place)
	if err != nil || err2 != nil || n < 0 || p.limit == 0 {
		return nil, capability.Errorf(capability.CodeInvalidInput, "decode", "cursor: %q is not one of this list; a cursor goes with a limit",
			cursor)
	}
	if g != generation {
		return nil, capability.Errorf(capability.CodeConflict, "catalog", "the catalog has changed since this list was begun").
			With("stale_cursor", "begin again without a cursor")
	}
	p.from = n
	return p, nil
}

// takes counts one item and reports whether it is on the page.
func (p *page) takes() bool {
	p.seen++
	return p.seen > p.from && (p.limit == 0 || p.seen <= p.from+p.limit)
}

// mark adds the cursor of the next page, if there is one.
func (p *page) mark(body map[string]any) map[string]any {
	if p.limit > 0 && p.seen > p.from+p.limit {
		body["next"] = strconv.FormatUint(p.generation, 10) + "." + strconv.Itoa(p.from+p.limit)
	}
	return body
}
