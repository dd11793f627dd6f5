package messaging

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
)

func TestEscapeMakesOneTokenOfAnyTextAndBack(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]string{
		"node-1_A":   "node-1_A",
		"a.b":        "a=2Eb",
		"*":          "=2A",
		"a>b c":      "a=3Eb=20c",
		"=":          "=3D",
		"ü":          "=C3=BC",
		"\x00\xff":   "=00=FF",
		"user:alice": "user=3Aalice",
	} {
		got := Escape(text)
		if got != want {
			t.Errorf("Escape(%q) = %q, want %q", text, got, want)
		}
		if back, ok := unescape(got); !ok || back != text {
			t.Errorf("unescape(%q) = %q, %v; want ok = true, back = %v", got, back, ok, text)
		}
		if err := CheckSubject("v1.host." + got + ".call"); err != nil {
			t.Errorf("%q is not a subject: %v", got, err)
		}
	}
	for _, bad := range []string{"a.b", "=", "=2", "=2e", "=41", "=ZZ", "a b"} {
		if text, ok := unescape(bad); ok {
			t.Errorf("unescape(%q) = %q, want a refusal: two tokens would name one node", bad, text)
		}
	}
}

func FuzzEscape(f *testing.F) {
	f.Add("a.b")
	f.Fuzz(func(t *testing.T, text string) {
		if text == "" || len(text) > 100 {
			return
		}
		token := Escape(text)
		if back, ok := unescape(token); !ok || back != text {
			t.Fatalf("%q → %q → %q; want ok = true, back = %v", text, token, back, text)
		}
		if err := CheckSubject(token); err != nil {
			t.Fatal(err)
		}
	})
}

func TestSubjectsThatAreRefused(t *testing.T) {
	t.Parallel()
	for _, bad := range []string{
		"", ".", "a.", ".a", "a..b", "a b", "a.*", "a.>", "$SYS.x", "a\x00", "a\r\nPUB", "a*b",
		strings.Repeat("a", MaxSubject+1),
	} {
		if err := CheckSubject(bad); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("CheckSubject(%q) = %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
	for _, bad := range []string{"", "a.>.b", "a*", "$JS.API.>", "a..*"} {
		if err := CheckPattern(bad); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("CheckPattern(%q) = %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
	for _, good := range []string{"a", "a.*.b", ">", "*", "a.>", "_INBOX.n.1"} {
		if err := CheckPattern(good); err != nil {
			t.Errorf("CheckPattern(%q) = %v", good, err)
		}
	}
}

func TestMessagesAboveTheLimitsAreRefused(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		m    Message
		code capability.Code
	}{
		"data at the limit":    {Message{Subject: "a", Data: make([]byte, MaxPayload)}, ""},
		"data above":           {Message{Subject: "a", Data: make([]byte, MaxPayload+1)}, capability.CodeTooLarge},
		"header above":         {Message{Subject: "a", Header: map[string]string{"k": strings.Repeat("v", MaxHeader)}}, capability.CodeTooLarge},
		"header splits a line": {Message{Subject: "a", Header: map[string]string{"k": "v\r\nx: y"}}, capability.CodeInvalidInput},
		"header name splits":   {Message{Subject: "a", Header: map[string]string{"k:": "v"}}, capability.CodeInvalidInput},
		"reply is a pattern":   {Message{Subject: "a", Reply: "b.*"}, capability.CodeInvalidInput},
	} {
		if err := CheckMessage(c.m); capability.CodeOf(err) != c.code {
			t.Errorf("%s: %v; want capability.CodeOf(err) = %v", name, err, c.code)
		}
	}
}

func TestKeysAndBucketsThatAreRefused(t *testing.T) {
	t.Parallel()
	for key, ok := range map[string]bool{
		"a": true, "a.b": true, Escape("a.b/c"): true, "": false, "a.": false, "=": false, "a b": false,
		"a.*": false, "a/b": false,
	} {
		if err := CheckEntry(key, nil); (err == nil) != ok {
			t.Errorf("CheckEntry(%q) = %v; want (err == nil) = %v", key, err, ok)
		}
	}
	if err := CheckEntry("a", make([]byte, MaxValue+1)); !Is(err, ReasonTooLarge) {
		t.Errorf("a value above the limit: %v; want Is(err, ReasonTooLarge)", err)
	}
	if err := CheckBucket(BucketOptions{Name: "a.b"}); err == nil {
		t.Error("a bucket's name with a dot was taken; want an error")
	}
}

func TestAFeedTellsASlowReaderWhatItMissed(t *testing.T) {
	t.Parallel()
	f := Feed[int]{Lost: -1}
	events := f.Read(t.Context())
	for i := range feedPending + 10 {
		f.Publish(i)
	}
	end := errors.New("the end")
	f.Close(end)
	var got []int
	var last error
	for v, err := range events {
		if last = err; err == nil {
			got = append(got, v)
		}
	}
	if want := []int{-1, 1024, 1025, 1026, 1027, 1028, 1029, 1030, 1031, 1032, 1033}; !slices.Equal(got, want) || !errors.Is(last, end) {
		t.Errorf("got %v and %v, want %v and the end", got, last, want)
	}
}

func TestAReaderThatNeverReadsIsForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		f := Feed[int]{}
		ctx, cancel := context.WithCancel(t.Context())
		_ = f.Read(ctx)
		cancel()
		synctest.Wait()
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.readers) != 0 {
			t.Errorf("%d readers are left; want len(f.readers) = 0", len(f.readers))
		}
	})
}

func TestPausesGrowByHalfAndAreSpread(t *testing.T) {
	t.Parallel()
	o := DialOptions{}.WithDefaults()
	for _, c := range []struct {
		n      int
		random float64
		want   time.Duration
	}{
		{1, 0.5, 3 * time.Second},
		{1, 0, 1500 * time.Millisecond},
		{2, 0.5, 4500 * time.Millisecond},
		{3, 0.5, 6750 * time.Millisecond},
		{1000, 0.5, 300 * time.Second},
		{1000, 0, 150 * time.Second},
	} {
		if got := o.Pause(c.n, c.random); got != c.want {
			t.Errorf("Pause(%d, %v) = %s, want %s", c.n, c.random, got, c.want)
		}
	}
}

func TestAnswersGoToTheSendersInboxOnly(t *testing.T) {
	t.Parallel()
	for reply, ok := range map[string]bool{
		"_INBOX.n1.a.1": true, "_INBOX.n1": false, "_INBOX.n10.a": false, "": false, "v1.host.n2.call": false, "_INBOX.n1.>": false,
		"_INBOX.n1.a b": false, "$SYS.REQ.SERVER.PING": false,
	} {
		if err := CheckReply(Message{Subject: "v1.gw.n1.join", Reply: reply}, "_INBOX.n1"); (err == nil) != ok {
			t.Errorf("%q: %v; want (err == nil) = %v", reply, err, ok)
		}
	}
}

// unescape reads a token that Escape wrote; ok is false for any other.
func unescape(token string) (text string, ok bool) {
	var b strings.Builder
	for i := 0; i < len(token); i++ {
		c := token[i]
		switch {
		case plain(c):
		case c == '=' && i+2 < len(token):
			hi, lo := unhex(token[i+1]), unhex(token[i+2])
			if hi < 0 || lo < 0 || plain(byte(hi<<4|lo)) {
				return "", false
			}
			c = byte(hi<<4 | lo)
			i += 2
		default:
			return "", false
		}
		b.WriteByte(c)
	}
	return b.String(), true
}

func unhex(c byte) int { return strings.IndexByte("0123456789ABCDEF", c) }
