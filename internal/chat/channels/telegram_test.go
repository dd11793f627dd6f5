package channels_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/testkit/faketelegram"
)

func TestTelegramShowsStyles(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	for text, want := range map[string]string{
		"**green** & [here](https://example.org)": "<b>green</b> &amp; here (https://example.org)",
		"a <b>c</b>": "a &lt;b&gt;c&lt;/b&gt;",
	} {
		_, err := r.provider().Invoke(t.Context(), send(text, "71", text))
		must(t, "send", err)
		if got := r.tg.Sent()[len(r.tg.Sent())-1]; got.Styled != want {
			t.Errorf("%q: got %q, want %q", text, got.Styled, want)
		}
	}
	// A text whose styles the service refuses is sent as it is, once.
	r.tg.Fail(func(method string, n int) faketelegram.Fault {
		if method == "sendMessage" && n == 2 {
			return faketelegram.Fault{Status: 400}
		}
		return faketelegram.Fault{}
	})
	before := len(r.tg.Sent())
	_, err := r.provider().Invoke(t.Context(), send("odd", "71", "*odd*"))
	must(t, "send", err)
	if got := r.tg.Sent()[before:]; len(got) != 1 || got[0].Text != "*odd*" || got[0].Styled != "" {
		t.Errorf("after a refusal of its styles: got %+v, want the text once, as it is", got)
	}
}

func TestAFileThatIsTooLargeIsNamedInstead(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	c := send("big", "", "")
	c.Input = []byte(`{"to":"71","text":"here","media":["run_1/big.iso"]}`)
	_, err := r.provider().Invoke(t.Context(), c)
	must(t, "send", err)
	list := r.tg.Sent()
	if len(list) != 2 || list[0].Text != "here" || !strings.Contains(list[1].Text, "junctor runs artifacts run_1 ") || list[1].File != "" {
		t.Errorf("sent: got %+v, want the text, and how to get the file", list)
	}
}

func TestAttachmentsOfTelegramAreFetched(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	r.add(nil)
	r.pair(71, capability.RoleAgent)
	r.tg.Write(71, 71, "", map[string]any{"document": map[string]any{
		"file_id": "BQAC-1_x", "file_unique_id": "u", "file_name": "notes.txt", "file_size": 12,
	}})
	var said string
	r.eventually("the attachment is named", func() bool {
		for _, list := range r.chat.all() {
			said = list[0]
		}
		return said != ""
	})
	i := strings.Index(said, "telegram:work:71/")
	if i < 0 || !strings.Contains(said, "with messageRef ") {
		t.Fatalf("the message: got %q, want the reference of the attachment", said)
	}
	ref, _, _ := strings.Cut(said[i:], " ")
	fetch := func(ref string) (out map[string]any, err error) {
		c := send("f", "", "")
		c.Action = "message.attachment.fetch"
		c.Input, err = json.Marshal(map[string]any{"messageRef": ref, "index": 0})
		must(t, "encode", err)
		res, err := r.provider().Invoke(t.Context(), c)
		if err == nil {
			must(t, "decode", json.Unmarshal(res.Value, &out))
		}
		return out, err
	}
	if out, err := fetch(ref); err != nil || out["text"] != "content of BQAC-1_x.txt" {
		t.Errorf("fetch %s: got %v, %v, want the content of BQAC-1_x", ref, out, err)
	}
	plain, _, _ := strings.Cut(ref, "~")
	if _, err := fetch(plain); err == nil || capability.AsError(err).Reason != "no_attachment" {
		t.Errorf("fetch %s: got %v, want no_attachment", plain, err)
	}
	// The reference of the attachment is one of the message, too.
	c := send("r", "", "")
	var err error
	c.Action = "message.react"
	c.Input, err = json.Marshal(map[string]any{"messageRef": ref, "emoji": "👍"})
	must(t, "encode", err)
	if _, err := r.provider().Invoke(t.Context(), c); err == nil || capability.AsError(err).Code == capability.CodeInvalidInput {
		t.Errorf("react to %s: got %v, want the service's answer about the message", ref, err)
	}
	if got := r.refusals(); !slices.Equal(got, []string(nil)) {
		t.Errorf("refusals: got %v, want none", got)
	}
}

func TestAServiceThatNeverAnswersDelaysNoOther(t *testing.T) {
	t.Parallel()
	r := newRig(t)
	hangs := make(chan struct{})
	silent := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-hangs }))
	t.Cleanup(func() {
		close(hangs)
		silent.Close()
	})
	_, err := r.Add(t.Context(), admin, channels.Account{
		Ref: channels.Ref{Kind: "telegram", Account: "silent"}, Secret: "bot", URL: silent.URL,
	})
	must(t, "add", err)
	r.add(nil)
	r.pair(71, capability.RoleAgent)
	for _, when := range []string{"after it was added", "after a restart"} {
		r.tg.Write(71, 71, when)
		r.eventually("the other account works "+when, func() bool {
			list := r.chat.all()["telegram:work:71"]
			return len(list) > 0 && list[len(list)-1] == when
		})
		r.stop() // also ends what waits for the silent one
		r.start()
		r.ready()
	}
	list, err := r.List(t.Context())
	must(t, "list", err)
	if list[0].Account.Account != "silent" || list[0].State.State != capability.StateStarting {
		t.Errorf("the silent account: got %s %s, want it starting", list[0].Account.Account, list[0].State.State)
	}
}
