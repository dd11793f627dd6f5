package slack

import (
	"encoding/json"
	"testing"
)

func TestTextsLoseTheMarksOfTheService(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"a &lt;b&gt; &amp; c":                             "a <b> & c",
		"see <https://example.org|the page> now":          "see https://example.org now",
		"<https://example.org>":                           "https://example.org",
		"<@U1> and <#C1|general> and <!here>":             "@U1 and #C1 and !here",
		"&amp;lt; stays":                                  "&lt; stays",
		"  spaces around  ":                               "spaces around",
		"<mailto:a@example.org|a@example.org> unclosed <": "mailto:a@example.org unclosed <",
	} {
		if got := plain(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestEnvelopesBecomeUpdates(t *testing.T) {
	t.Parallel()
	message := func(event string) string {
		return `{"envelope_id":"e","type":"events_api","payload":{"event":` + event + `}}`
	}
	for _, one := range []struct {
		name, doc string
		want      string // "": no update
	}{
		{"alone", message(`{"type":"message","channel":"D1","user":"U1","text":"hello","ts":"1.1"}`), "D1 1.1|hello|dm|true|"},
		{"in a channel", message(`{"type":"message","channel":"C1","user":"U1","text":"hello","ts":"1.1"}`), "C1 1.1|hello|group|false|"},
		{"a mention", message(`{"type":"app_mention","channel":"C1","user":"U1","text":"<@UME> !tasks","ts":"1.1"}`), "C1 1.1|!tasks|group|true|"},
		{"in a thread", message(`{"type":"message","channel":"C1","user":"U1","text":"x","ts":"1.2","thread_ts":"1.1","parent_user_id":"UME"}`), "C1 1.2|x|group|true|1.1"},
		{"the head of a thread", message(`{"type":"message","channel":"D1","user":"U1","text":"x","ts":"1.1","thread_ts":"1.1"}`), "D1 1.1|x|dm|true|"},
		{"of the account", message(`{"type":"message","channel":"D1","user":"UME","text":"x","ts":"1.1"}`), ""},
		{"of a bot", message(`{"type":"message","channel":"D1","user":"U1","bot_id":"B","text":"x","ts":"1.1"}`), ""},
		{"an edit", message(`{"type":"message","subtype":"message_changed","channel":"D1","user":"U1","text":"x","ts":"1.1"}`), ""},
		{"another event", message(`{"type":"reaction_added","user":"U1"}`), ""},
		{"no event", `{"envelope_id":"e","type":"events_api","payload":{}}`, ""},
		{"two actions", `{"type":"interactive","payload":{"type":"block_actions","user":{"id":"U1"},"actions":[{"value":"a"},{"value":"b"}]}}`, ""},
		{"a view", `{"type":"interactive","payload":{"type":"view_submission","user":{"id":"U1"}}}`, ""},
	} {
		var e envelope
		if err := json.Unmarshal([]byte(one.doc), &e); err != nil {
			t.Fatalf("%s: got %v, want JSON", one.name, err)
		}
		got := ""
		if u, ok := e.convert("UME"); ok {
			got = u.ID + "|" + u.Text + "|" + u.ConversationKind + map[bool]string{true: "|true|", false: "|false|"}[u.ToMe] + u.Thread
		}
		if got != one.want {
			t.Errorf("%s: got %q, want %q", one.name, got, one.want)
		}
	}
}

func FuzzEnvelopes(f *testing.F) {
	f.Add([]byte(`{"envelope_id":"e","type":"events_api","payload":{"event":{"type":"message","channel":"D1","user":"U1","text":"<@UME><@UME> x","ts":"1.1"}}}`))
	f.Add([]byte(`{"type":"interactive","payload":{"type":"block_actions","user":{"id":"U1"},"container":{"channel_id":"D1"},"actions":[{"value":"once"}]}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e envelope
		if json.Unmarshal(data, &e) != nil {
			return
		}
		if u, ok := e.convert("UME"); ok && (u.User == "" || u.User == "UME" && e.Type == "events_api") {
			t.Errorf("got %+v, want an update of a person", u)
		}
	})
}
