package reference

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/protocol/router"
)

const notesID = "field-notes"

// note is one stored note.
type note struct {
	ID      string   `json:"id"`
	Text    string   `json:"text"`
	Tags    []string `json:"tags"`
	Created string   `json:"created"`
}

// notes is the state of module field-notes.
type notes struct {
	now    func() time.Time
	bundle []byte

	mu     sync.Mutex
	list   []note // oldest first
	nextID int
	max    int
	store  map[string]any
}

func newNotes(now func() time.Time, bundle []byte) *notes {
	return &notes{now: now, bundle: bundle, max: defaultMaxNotes, store: make(map[string]any)}
}

func (n *notes) register(e *Endpoint) {
	on(e, "plugin.action.invoke", notesID, "NOTE_ADD", n.actionAdd)
	on(e, "plugin.action.invoke", notesID, "NOTE_SEARCH", n.actionSearch)
	on(e, "plugin.provider.get", notesID, "NOTES_RECENT", n.recent)
	on(e, "plugin.event.handle", notesID, "NOTES_IMPORTED", n.imported)
	on(e, "plugin.model.invoke", notesID, "TEXT_EMBEDDING", textEmbedding)
	on(e, "plugin.service.call", notesID, "notes-store", n.call)
	on(e, "plugin.lifecycle.call", notesID, "init", n.applyConfig)
	on(e, "plugin.lifecycle.call", notesID, "applyConfig", n.applyConfig)
	on(e, "plugin.lifecycle.call", notesID, "dispose", n.dispose)
	on(e, "plugin.route.call", notesID, "", n.route)
	on(e, "plugin.asset.get", notesID, "", n.asset)
	on(e, "plugin.evaluator.shouldRun", notesID, "note-extractor", extractorShouldRun)
	on(e, "plugin.evaluator.prepare", notesID, "note-extractor", n.extractorPrepare)
	on(e, "plugin.evaluator.prompt", notesID, "note-extractor", extractorPrompt)
	on(e, "plugin.evaluator.process", notesID, "note-extractor", n.extractorProcess)
}

// add stores a note; the caller holds the lock.
func (n *notes) add(text string, tags []string) (note, error) {
	text = strings.TrimSpace(text)
	switch {
	case text == "":
		return note{}, invalid("a note needs a text")
	case len(text) > maxNoteLength:
		return note{}, capability.Errorf(capability.CodeTooLarge, "", "a note has at most %d bytes", maxNoteLength)
	case len(tags) > 16:
		return note{}, invalid("a note has at most 16 tags")
	}
	n.nextID++
	added := note{ID: "n" + strconv.Itoa(n.nextID), Text: text, Tags: append([]string{}, tags...), Created: stamp(n.now())}
	n.list = append(n.list, added)
	n.trim()
	return added, nil
}

func (n *notes) trim() {
	if over := len(n.list) - n.max; over > 0 {
		n.list = slices.Delete(n.list, 0, over)
	}
}

type noteParams struct {
	Content struct {
		Text string   `json:"text"`
		Tags []string `json:"tags"`
	} `json:"content"`
}

func (n *notes) actionAdd(_ context.Context, p noteParams) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	added, err := n.add(p.Content.Text, p.Content.Tags)
	if err != nil {
		return nil, err
	}
	return reply{
		Text:   "Noted: " + added.Text,
		Values: object{"noteId": added.ID, "noteCount": len(n.list)},
		Data:   object{"note": added},
	}, nil
}

func (n *notes) actionSearch(_ context.Context, p noteParams) (any, error) {
	wanted := words(p.Content.Text)
	if len(wanted) == 0 {
		return nil, invalid("a search needs a text")
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	type hit struct {
		note
		Score int `json:"score"`
	}
	hits := []hit{}
	for _, x := range n.list {
		score := 0
		for _, w := range words(x.Text) {
			if slices.Contains(wanted, w) {
				score++
			}
		}
		if score > 0 {
			hits = append(hits, hit{x, score})
		}
	}
	slices.SortStableFunc(hits, func(a, b hit) int { return b.Score - a.Score })
	hits = hits[:min(len(hits), 10)]
	return reply{
		Text:   fmt.Sprintf("%d notes match.", len(hits)),
		Values: object{"matches": len(hits)},
		Data:   object{"notes": hits},
	}, nil
}

type recentParams struct {
	State struct {
		Limit int `json:"limit"`
	} `json:"state"`
}

func (n *notes) recent(_ context.Context, p recentParams) (any, error) {
	limit := p.State.Limit
	if limit <= 0 || limit > 50 {
		limit = 5
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	latest := n.newest(limit)
	lines := make([]string, len(latest))
	for i, x := range latest {
		lines[i] = "- " + x.Text
	}
	text := "There are no notes."
	if len(lines) > 0 {
		text = "Recent notes:\n" + strings.Join(lines, "\n")
	}
	return reply{Text: text, Values: object{"noteCount": len(n.list), "maxNotes": n.max}, Data: object{"notes": latest}}, nil
}

func (n *notes) newest(limit int) []note {
	latest := slices.Clone(n.list[max(0, len(n.list)-limit):])
	slices.Reverse(latest)
	if latest == nil {
		latest = []note{}
	}
	return latest
}

type importParams struct {
	Payload struct {
		Notes []string `json:"notes"`
	} `json:"payload"`
}

// imported adds all notes of the event or, when one is bad, none.
func (n *notes) imported(_ context.Context, p importParams) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	before, id := slices.Clone(n.list), n.nextID
	for _, text := range p.Payload.Notes {
		if _, err := n.add(text, []string{"imported"}); err != nil {
			n.list, n.nextID = before, id
			return nil, err
		}
	}
	return object{"handled": true}, nil
}

func (n *notes) applyConfig(_ context.Context, p hookParams) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if v, ok := p.Config["maxNotes"]; ok {
		limit, err := strconv.Atoi(v)
		if err != nil || limit < 1 || limit > 100_000 {
			return nil, invalid("maxNotes must be a number from 1 to 100000, not %q", v)
		}
		n.max = limit
		n.trim()
	}
	return object{"ok": true}, nil
}

func (n *notes) dispose(context.Context, struct{}) (any, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.list, n.max = nil, defaultMaxNotes
	clear(n.store)
	return object{"ok": true}, nil
}

type assetParams struct {
	Path string `json:"path"`
}

func (n *notes) asset(_ context.Context, p assetParams) (any, error) {
	path, err := router.CleanAssetPath(p.Path)
	if err != nil {
		return nil, invalid("the asset path %v", err)
	}
	if path != BundlePath {
		return nil, capability.Errorf(capability.CodeNotFound, "", "field-notes has no asset %s", path)
	}
	return router.EncodeAsset(router.Asset{
		Path: path, ContentType: "text/javascript", Body: n.bundle, Integrity: router.Integrity(n.bundle),
	})
}
