package agent_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/protocol/modelwire"
)

// summarist is a small model that writes a summary, or fails.
type summarist struct {
	mu    sync.Mutex
	text  string
	asked []string
}

func (m *summarist) Exchange(_ context.Context, req modelwire.Request, _ func(modelwire.Delta) error) (modelwire.Reply, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asked = append(m.asked, req.Messages[0].Text())
	if m.text == "" {
		return modelwire.Reply{}, errors.New("it is out of order")
	}
	return modelwire.Reply{Message: modelwire.Message{Blocks: []modelwire.Block{{Kind: modelwire.Text, Text: m.text}}}}, nil
}

// A long run replaces its older steps by a summary with its range, which is tainted as they are. The
// records stay, and between two summaries each request begins with the bytes of the one before.
func TestALongRunIsCompacted(t *testing.T) {
	for name, c := range map[string]struct {
		small   *summarist
		calls   int // requests in all that the budget allows
		summary string
	}{
		"by the small model":   {&summarist{text: "It read page after page."}, 60, "It read page after page."},
		"without a model":      {&summarist{}, 60, `call look {"n":1}`},
		"at the budget's edge": {&summarist{text: "It read page after page."}, 12, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			journal := openJournal(t)
			var bodies [][]byte
			model := &caller{tool: "look", steps: 40, asked: func(r modelwire.Request) {
				body, err := modelwire.OpenAIChat.Encode(r)
				if err != nil {
					t.Errorf("encode: got %v, want no error", err)
				}
				bodies = append(bodies, body)
			}}
			page := strings.Repeat("0123456789abcdef", 1<<10-8)
			e := opened(t, agent.Config{
				Model: model, Small: c.small, Policy: free{}, Journal: journal,
				Budget: agent.Budget{ModelCalls: c.calls, ToolCalls: 60, Work: time.Minute},
				Path: answering{instant{lookCatalog(t)}, func(inv capability.Invocation) (string, error) {
					data, err := json.Marshal("page of " + string(inv.Input) + page)
					return string(data), err
				}},
			})
			o := ended(t, e, "read it all")
			if o.State != agent.Completed || !o.Tainted {
				t.Errorf("the run: got %s, tainted %v and %v, want it completed and tainted", o.State, o.Tainted, o.Error)
			}
			changed := 0
			for i := 1; i < len(bodies); i++ {
				if !strings.HasPrefix(string(bodies[i]), strings.TrimSuffix(string(bodies[i-1]), "]}")) {
					changed++
				}
				if len(bodies[i]) > 200<<10 {
					t.Errorf("request %d has %d bytes, want it bounded", i, len(bodies[i]))
				}
			}
			runs, _, err := journal.Runs(t.Context(), agent.Query{Limit: 1})
			if err != nil {
				t.Fatalf("runs: got %v, want no error", err)
			}
			records, err := journal.Records(t.Context(), runs[0].ID)
			if err != nil {
				t.Fatalf("records: got %v, want no error", err)
			}
			results, summaries, last := 0, 0, int64(0)
			for _, rec := range records {
				switch rec.Kind {
				case "result":
					results++
				case "compacted":
					var doc struct {
						From, To int64
						Foreign  bool
						Text     string
					}
					if err := json.Unmarshal(rec.Doc, &doc); err != nil || doc.From < 2 || doc.To <= last || doc.To >= rec.Seq || !doc.Foreign {
						t.Errorf("a summary: got %s and %v, want a range that grows, and foreign", rec.Doc, err)
					}
					if summaries++; !strings.Contains(doc.Text, c.summary) || len(doc.Text) > 8<<10 {
						t.Errorf("a summary: got %.200s, want %q in at most 8 KiB", doc.Text, c.summary)
					}
					read := 0 // results that the summary stands for
					for _, old := range records {
						if old.Kind == "result" && old.Seq <= doc.To {
							read++
						}
					}
					if call := fmt.Sprintf(`call look {"n":%d}`, read); c.small.text == "" && !strings.Contains(doc.Text, call) {
						t.Errorf("a summary without a model ends with %.200s, want its last call too: %s", doc.Text[max(0, len(doc.Text)-200):], call)
					}
					last = doc.To
				}
			}
			if summaries < 1 || changed > summaries+1 || results < 10 { // the final request also changes the choice of tools
				t.Errorf("got %d summaries, %d changes of the prefix and %d results, want some, not more changes, and all results", summaries,
					changed, results)
			}
			body := string(bodies[len(bodies)-1])
			if !strings.Contains(body, "[summary of records ") || !strings.Contains(body, "never instructions") {
				t.Errorf("the last request: got %.300s, want the summary, marked as data", body)
			}
			if c.calls < 20 && len(c.small.asked)+len(bodies) > c.calls {
				t.Errorf("requests: got %d and %d, want at most %d together", len(bodies), len(c.small.asked), c.calls)
			}
		})
	}
}
