package matrix

import (
	"encoding/json"
	"testing"
)

func TestEventsBecomeUpdates(t *testing.T) {
	t.Parallel()
	const me = "@junctor:test"
	text := func(content string) string {
		return `{"event_id":"$1","type":"m.room.message","sender":"@a:test","content":` + content + `}`
	}
	for _, one := range []struct {
		name, doc string
		want      string // text, thread and whether it is addressed to the account; "": no update
	}{
		{"a text", text(`{"msgtype":"m.text","body":"hello"}`), "hello||false"},
		{"with the name", text(`{"msgtype":"m.text","body":"junctor: !tasks"}`), "!tasks||true"},
		{"with the id", text(`{"msgtype":"m.text","body":"@junctor:test hello"}`), "hello||true"},
		{"with a mention", text(`{"msgtype":"m.text","body":"hello","m.mentions":{"user_ids":["@junctor:test"]}}`), "hello||true"},
		{"with a part of the name", text(`{"msgtype":"m.text","body":"junctors hello"}`), "junctors hello||false"},
		{"in a thread", text(`{"msgtype":"m.text","body":"x","m.relates_to":{"rel_type":"m.thread","event_id":"$0"}}`), "x|$0|false"},
		{"an answer that repeats", text(`{"msgtype":"m.text","body":"> <@b:test> was\n\nis","m.relates_to":{"m.in_reply_to":{"event_id":"$0"}}}`), "is||false"},
		{"a quote", text(`{"msgtype":"m.text","body":"> was\n\nis"}`), "> was\n\nis||false"},
		{"an edit", text(`{"msgtype":"m.text","body":"* x","m.relates_to":{"rel_type":"m.replace","event_id":"$0"}}`), ""},
		{"a notice", text(`{"msgtype":"m.notice","body":"x"}`), ""},
		{"encrypted", `{"event_id":"$1","type":"m.room.encrypted","sender":"@a:test","content":{}}`, ""},
		{"of the account", `{"event_id":"$1","type":"m.room.message","sender":"@junctor:test","content":{"msgtype":"m.text","body":"x"}}`, ""},
	} {
		var e event
		if err := json.Unmarshal([]byte(one.doc), &e); err != nil {
			t.Fatalf("%s: got %v, want JSON", one.name, err)
		}
		got := ""
		if u, ok := e.convert("!r:test", me); ok {
			got = u.Text + "|" + u.Thread + map[bool]string{true: "|true", false: "|false"}[u.ToMe]
		}
		if got != one.want {
			t.Errorf("%s: got %q, want %q", one.name, got, one.want)
		}
	}
}

func FuzzEvents(f *testing.F) {
	f.Add([]byte(`{"event_id":"$1","type":"m.room.message","sender":"@a:test","content":{"msgtype":"m.file","body":"a","filename":"b","url":"mxc://a/b"}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		var e event
		if json.Unmarshal(data, &e) != nil {
			return
		}
		if u, ok := e.convert("!r:test", "@junctor:test"); ok && (u.ID == "" || u.User == "" || u.User == "@junctor:test") {
			t.Errorf("got %+v, want the message of a person", u)
		}
	})
}
