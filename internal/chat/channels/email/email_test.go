package email

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"errors"
	"fmt"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/testkit/fakechat"
	"github.com/junctor-run/junctor/secret"
)

func TestProofsAreBound(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_800_000_000, 0)
	signers := make(map[string]*signer)
	for _, one := range []string{"a@example.org pass", "a@example.org other", "b@example.org pass", "a@example.com pass"} {
		account, password, _ := strings.Cut(one, " ")
		s, err := newSigner(account, password)
		if err != nil {
			t.Fatalf("newSigner(%s) = %v, want a signer", account, err)
		}
		signers[one] = s
	}
	ours := signers["a@example.org pass"]
	id := ours.id("ann@example.org", "key", now)
	if again := ours.id("ann@example.org", "key", now.Add(time.Minute)); again != id {
		t.Errorf("the id of a repeated mail: got %s, want %s", again, id)
	}
	if other := ours.id("ann@example.org", "key 2", now); other == id {
		t.Errorf("the id of another mail: got the same, %s", id)
	}
	ref := ours.ref(id, "ann@example.org")
	if back := ours.find(ref, "ann@example.org"); back != id || ours.proves(ref, "ann@example.org", now) ||
		ours.proves(ref+"@example.org", "ann@example.org", now) || ours.find(ref, "bob@example.org") == id {
		t.Errorf("the reference: got %q and back %q, want the id %q from the reference, which proves nothing", ref, back, id)
	}
	for name, s := range signers {
		if got, want := s.proves(id, "ann@example.org", now), s == ours; got != want {
			t.Errorf("proves(%s) = %v, want %v", name, got, want)
		}
	}
	for _, one := range []struct {
		name, id, address string
		after             time.Duration
		want              bool
	}{
		{"as it was sent", id, "ann@example.org", 0, true},
		{"in capitals", strings.ToUpper(id), "ann@example.org", 0, true},
		{"after two months", id, "ann@example.org", 60 * dayInterval, true},
		{"after four months", id, "ann@example.org", 120 * dayInterval, false},
		{"before it was sent", id, "ann@example.org", -5 * dayInterval, false},
		{"of another person", id, "bob@example.org", 0, false},
		{"cut", id[:30] + id[strings.IndexByte(id, '@'):], "ann@example.org", 0, false},
		{"changed", strings.Replace(id, id[10:11], "7", 1), "ann@example.org", 0, id[10:11] == "7"},
		{"empty", "", "ann@example.org", 0, false},
	} {
		if got := ours.proves(one.id, one.address, now.Add(one.after)); got != one.want {
			t.Errorf("%s: proves = %v, want %v", one.name, got, one.want)
		}
	}
}

func TestServersAreParsed(t *testing.T) {
	t.Parallel()
	for url, want := range map[string]string{
		"imaps://mail.example.org?smtp=smtps://out.example.org":             "mail.example.org 993 true false, out.example.org 465 true false",
		"imap://mail.example.org?smtp=smtp://out.example.org":               "mail.example.org 143 false false, out.example.org 587 false false",
		"imaps://mail.example.org:1993/?smtp=smtp://out.example.org:25":     "mail.example.org 1993 true false, out.example.org 25 false false",
		"imap://127.0.0.1:1143?smtp=smtp://[::1]:1025":                      "127.0.0.1 1143 false true, ::1 1025 false true",
		"imap://localhost?smtp=smtp://10.0.0.1":                             "localhost 143 false false, 10.0.0.1 587 false false",
		"imaps://mail.example.org":                                          "",
		"imaps://user:secret@mail.example.org?smtp=smtps://out.example.org": "",
		"imaps://mail.example.org?smtp=smtps://user:secret@out.example.org": "",
		"https://mail.example.org?smtp=smtps://out.example.org":             "",
		"imaps://mail.example.org?smtp=https://out.example.org":             "",
		"imaps://?smtp=smtps://out.example.org":                             "",
		"imaps://a?smtp=smtps://b&smtp=smtps://c":                           "",
		"imaps://a?smtp=smtps://b&tls=off":                                  "",
		"":                                                                  "",
	} {
		in, out, err := parseServers(url)
		got := fmt.Sprintf("%s %s %v %v, %s %s %v %v", in.host, in.port, in.tls, in.plain, out.host, out.port, out.tls, out.plain)
		if err != nil {
			if got = ""; strings.Contains(err.Error(), "secret") || capability.CodeOf(err) != capability.CodeInvalidInput {
				t.Errorf("%s: got %v, want invalid_input without the password", url, err)
			}
		}
		if got != want {
			t.Errorf("%s: got %q, want %q", url, got, want)
		}
	}
}

func open(t *testing.T, fake *fakechat.Email, edit func(*channel)) *channel {
	t.Helper()
	c, err := Kind().Open(channels.Settings{
		Account: channels.Account{URL: fake.URL()}, Secret: func() (secret.Value, error) { return secret.New(fake.Secret()), nil },
	})
	if err != nil {
		t.Fatalf("Open() = %v, want a channel", err)
	}
	out, _ := c.(*channel)
	if edit != nil {
		edit(out)
	}
	return out
}

// follow runs a channel until a mail with the text "end", and returns the cursors and updates.
func follow(t *testing.T, c *channel, cursor string, ready func()) (last string, list []channels.Update, err error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	end := errors.New("end")
	err = c.Run(ctx, cursor, func(string) { ready() }, func(_ context.Context, next string, more []channels.Update) error {
		last = next
		for _, u := range more {
			if u.Text == "end" {
				return end
			}
			list = append(list, u)
		}
		return nil
	})
	if errors.Is(err, end) {
		err = nil
	}
	return last, list, err
}

func TestAReplacedMailboxBeginsAtItsEnd(t *testing.T) {
	t.Parallel()
	fake := fakechat.NewEmail(t, nil, false)
	c := open(t, fake, nil)
	fake.Write("", "1", "before the account")
	cursor, list, err := follow(t, c, "", func() {
		fake.Write("", "1", "first")
		fake.Write("", "1", "end")
	})
	if err != nil || len(list) != 1 || list[0].Text != "first" || !strings.HasSuffix(cursor, ":3") {
		t.Fatalf("the first connection: got %v, %+v and the cursor %s, want the mails behind the first", err, list, cursor)
	}
	fake.Write("", "1", "while away")
	cursor, list, err = follow(t, c, cursor, func() { fake.Write("", "1", "end") })
	if err != nil || len(list) != 1 || list[0].Text != "while away" {
		t.Fatalf("the second connection: got %v, %+v, want what came meanwhile", err, list)
	}
	fake.Renew()
	fake.Write("", "1", "old")
	next, list, err := follow(t, c, cursor, func() {})
	if capability.CodeOf(err) != capability.CodeUnavailable || !strings.Contains(err.Error(), "UIDVALIDITY") || len(list) != 0 {
		t.Fatalf("a replaced mailbox: got %v, %+v, want it reported", err, list)
	}
	_, list, err = follow(t, c, next, func() { fake.Write("", "1", "end") })
	if err != nil || len(list) != 0 {
		t.Errorf("behind it: got %v, %+v, want no old mail", err, list)
	}
}

// TestAMailThatEndsConnectionsStopsNone requires that a mail which cannot be read is recorded, and
// the one behind it is read.
func TestAMailThatEndsConnectionsStopsNone(t *testing.T) {
	t.Parallel()
	fake := fakechat.NewEmail(t, nil, false)
	c := open(t, fake, nil)
	cursor, _, err := follow(t, c, "", func() { fake.Write("", "1", "end") })
	if err != nil {
		t.Fatalf("the first connection: got %v, want none", err)
	}
	fake.Fail(func(method string, n int) fakechat.Fault {
		return fakechat.Fault{Drop: method == "FETCH" && n < maxTries+2}
	})
	fake.Write("", "1", "poison")
	fake.Write("", "1", "end")
	failed := 0
	for ; ; failed++ {
		next, list, err := follow(t, c, cursor, func() {})
		if next != "" {
			cursor = next
		}
		if err == nil {
			break
		}
		if failed > maxTries+3 {
			t.Fatalf("got %v, %+v after %d connections, want the mail left out", err, list, failed)
		}
		if len(list) > 0 && (list[0].User != "unknown" || !list[0].Unproved) {
			t.Errorf("the mail: got %+v, want an unknown sender", list[0])
		}
	}
	if failed < maxTries {
		t.Errorf("got %d connections that failed, want at least %d", failed, maxTries)
	}
}

func certificate(t *testing.T) (*tls.Certificate, *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatalf("GenerateKey() = %v, want a key", err)
	}
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "mail"}, NotAfter: time.Now().Add(time.Hour), IsCA: true,
		BasicConstraintsValid: true, IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)},
	}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatalf("CreateCertificate() = %v, want a certificate", err)
	}
	parsed, _ := x509.ParseCertificate(raw)
	pool := x509.NewCertPool()
	pool.AddCert(parsed)
	return &tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key}, pool
}

// TestServersProveWhoTheyAre requires that a certificate is checked before the password is sent, both
// with TLS from the beginning and with STARTTLS, which is required.
func TestServersProveWhoTheyAre(t *testing.T) {
	t.Parallel()
	cert, pool := certificate(t)
	for _, one := range []struct {
		name         string
		offered      *tls.Certificate
		start, trust bool
		want         bool
	}{
		{"TLS", cert, false, true, true},
		{"STARTTLS", cert, true, true, true},
		{"TLS with another certificate", cert, false, false, false},
		{"STARTTLS with another certificate", cert, true, false, false},
		{"STARTTLS that is not offered", nil, true, true, false},
	} {
		t.Run(one.name, func(t *testing.T) {
			t.Parallel()
			fake := fakechat.NewEmail(t, one.offered, one.start)
			c := open(t, fake, func(c *channel) {
				c.in.plain, c.out.plain = false, false // as for another host
				if one.trust {
					c.roots = pool
				}
			})
			_, _, err := follow(t, c, "", func() { fake.Write("", "1", "end") })
			if one.want != (err == nil) || err != nil && capability.CodeOf(err) != capability.CodeUnavailable {
				t.Errorf("IMAP: got %v, want success: %v", err, one.want)
			}
			_, err = c.Do(t.Context(), channels.Op{Verb: channels.VerbSend, Key: "1", Conversation: fake.User("1"), Text: "x"})
			if one.want != (err == nil) || err != nil && capability.CodeOf(err) != capability.CodeUnavailable {
				t.Errorf("SMTP: got %v, want success: %v", err, one.want)
			}
		})
	}
}

// TestSendsReportTheirOutcome compares the errors of sends.
func TestSendsReportTheirOutcome(t *testing.T) {
	t.Parallel()
	fake := fakechat.NewEmail(t, nil, false)
	c := open(t, fake, nil)
	op := channels.Op{Verb: channels.VerbSend, Conversation: fake.User("1"), Text: "x", At: time.Now()}
	for _, one := range []struct {
		name   string
		fault  fakechat.Fault
		code   capability.Code
		reason string
	}{
		{"refused", fakechat.Fault{Status: 554}, capability.CodeFailed, ""},
		{"busy", fakechat.Fault{Status: 451}, capability.CodeOverloaded, ""},
		{"lost", fakechat.Fault{Cut: true}, capability.CodeFailed, channels.ReasonDeliveryUnknown},
		{"lost and repeated", fakechat.Fault{}, "", ""},
	} {
		fake.Fail(func(method string, _ int) fakechat.Fault {
			if method == "DATA" {
				return one.fault
			}
			return fakechat.Fault{}
		})
		_, err := c.Do(t.Context(), op)
		e := capability.AsError(err)
		if e == nil {
			e = &capability.Error{}
		}
		if e.Code != one.code || e.Reason != one.reason || one.code == capability.CodeOverloaded && e.RetryAfter <= 0 {
			t.Errorf("%s: got %s, %s after %s, want %s, %s", one.name, e.Code, e.Reason, e.RetryAfter, one.code, one.reason)
		}
	}
	if got := fake.Sent(); len(got) != 1 {
		t.Errorf("got %d mails, want one", len(got))
	}
	fake.Revoke()
	if _, err := c.Do(t.Context(), op); capability.CodeOf(err) != capability.CodeUnauthenticated {
		t.Errorf("a refused password: got %v, want unauthenticated", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Do(ctx, op); !errors.Is(err, context.Canceled) {
		t.Errorf("without time: got %v, want %v", err, context.Canceled)
	}
}

// TestReferencesHideTheProofOfEveryAddress requires that the id of a mail to one person is not shown in
// the conversation of another.
func TestReferencesHideTheProofOfEveryAddress(t *testing.T) {
	t.Parallel()
	s := &signer{account: "junctor@example.org", key: make([]byte, 32)}
	id := s.id("bob@example.org", "key", time.Now())
	for _, address := range []string{"bob@example.org", "ann@example.org"} {
		ref := s.ref(id, address)
		if ref == "" || len(ref) >= len(id)-len("@example.org") || strings.Contains(ref, "@") {
			t.Errorf("the reference for %s: got %q, want the part of %q that proves nothing", address, ref, id)
		}
		if found := s.find(ref, "ann@example.org"); s.proves(found, "bob@example.org", time.Now()) {
			t.Errorf("%q in the conversation of ann: got %q, want no proof for bob", ref, found)
		}
	}
}
