package discord

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/chat/channels"
)

func TestEscapedTextsAreShownLetterByLetter(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain text, 1.5 € and ü": "plain text, 1.5 € and ü",
		"||hidden||":              `\|\|hidden\|\|`,
		"**b** _i_ ~s~ `c`":       "\\*\\*b\\*\\* \\_i\\_ \\~s\\~ \\`c\\`",
		"[shown](https://x.test)": `\[shown\]\(https\://x.test\)`,
		"<@1> @everyone :smile:":  `\<\@1\> \@everyone \:smile\:`,
		"# head\n> quote\n- item": "\\# head\n\\> quote\n\\- item",
		`a\b`:                     `a\\b`,
	} {
		if got := escape(in); got != want {
			t.Errorf("%q: got %q, want %q", in, got, want)
		}
	}
}

func TestMessagesOfPeopleBecomeUpdates(t *testing.T) {
	t.Parallel()
	me := user{ID: "1", Name: "junctor"}
	for _, one := range []struct {
		name, doc string
		want      string // text, kind and whether it is addressed to the account; "": no update
	}{
		{"to the account alone", `{"id":"5","channel_id":"9","author":{"id":"2"},"content":"hello"}`, "hello dm true"},
		{"in a guild", `{"id":"5","channel_id":"9","guild_id":"7","author":{"id":"2"},"content":"hello"}`, "hello group false"},
		{"with a mention", `{"id":"5","guild_id":"7","author":{"id":"2"},"content":"<@1> !tasks","mentions":[{"id":"1"}]}`, "!tasks group true"},
		{"an answer to the account", `{"id":"5","guild_id":"7","type":19,"author":{"id":"2"},"content":"yes","referenced_message":{"author":{"id":"1"}}}`, "yes group true"},
		{"of a bot", `{"id":"5","author":{"id":"2","bot":true},"content":"hello"}`, ""},
		{"of a webhook", `{"id":"5","author":{"id":"2"},"webhook_id":"3","content":"hello"}`, ""},
		{"a person joined", `{"id":"5","type":7,"author":{"id":"2"},"content":"hello"}`, ""},
		{"without content", `{"id":"5","author":{"id":"2"}}`, ""},
		{"without an id", `{"author":{"id":"2"},"content":"hello"}`, ""},
	} {
		var m message
		if err := json.Unmarshal([]byte(one.doc), &m); err != nil {
			t.Fatalf("%s: got %v, want JSON", one.name, err)
		}
		got := ""
		if u, ok := m.convert(me); ok {
			got = strings.TrimSpace(u.Text + " " + u.ConversationKind + map[bool]string{true: " true", false: " false"}[u.ToMe])
		}
		if got != one.want {
			t.Errorf("%s: got %q, want %q", one.name, got, one.want)
		}
	}
}

func TestThePositionRemembersTheLastConversations(t *testing.T) {
	t.Parallel()
	var p position
	for i := range 3 * maxSeen {
		u := channels.Update{Kind: channels.Wrote, Conversation: string(rune('a' + i%(maxSeen+5))), Message: string(rune(i + 1))}
		p.saw(&u)
	}
	if len(p.Seen) != maxSeen {
		t.Fatalf("conversations: got %d, want %d", len(p.Seen), maxSeen)
	}
	names := make(map[string]bool)
	for _, s := range p.Seen {
		names[s.Conversation] = true
	}
	if len(names) != maxSeen || p.Seen[maxSeen-1].Message != string(rune(3*maxSeen)) {
		t.Errorf("got %d names and the newest message %q, want each once and the newest at the end", len(names), p.Seen[maxSeen-1].Message)
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"id":"5","channel_id":"9","guild_id":"7","author":{"id":"2"},"content":"<@1> x","mentions":[{"id":"1"}]}`))
	f.Add([]byte(`{"id":"5","type":3,"token":"t","member":{"user":{"id":"2"}},"message":{"id":"4"},"data":{"custom_id":"once"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var m message
		if json.Unmarshal(data, &m) == nil {
			if u, ok := m.convert(user{ID: "1"}); ok && (u.ID == "" || u.User == "" || u.User == "1" && m.Author.Bot) {
				t.Errorf("got %+v, want the message of a person", u)
			}
		}
		var p press
		if json.Unmarshal(data, &p) == nil {
			if u, ok := p.convert(); ok && (u.ID == "" || u.Kind != channels.Pressed) {
				t.Errorf("got %+v, want a press with an id", u)
			}
		}
	})
}
