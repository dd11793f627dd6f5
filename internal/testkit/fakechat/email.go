package fakechat

import (
	"bytes"
	"crypto/tls"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"mime"
	"mime/multipart"
	"mime/quotedprintable"
	"net"
	"net/mail"
	"net/textproto"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapserver"
	"github.com/emersion/go-imap/v2/imapserver/imapmemserver"
	"github.com/emersion/go-sasl"
	"github.com/emersion/go-smtp"
)

// Email is a mail system with a mailbox of ours: IMAP and SMTP on loopback. Users answer the last
// mail that they got, as mail programs do.
type Email struct {
	base
	user     *imapmemserver.User
	in, out  net.Listener
	imap     *imapserver.Server
	conns    []net.Conn // of IMAP
	inbox    map[string]*mail.Message
	received map[string][]byte // raw mails by Message-ID
	scheme   string            // "s" with TLS
}

// The account of the mail system.
const (
	EmailAddress  = "junctor@example.org"
	emailPassword = "x7kq mb2v" // of the account
)

// NewEmail starts a mail system until the test ends. With a certificate it uses TLS, or STARTTLS if
// start is set; otherwise it does not encrypt.
func NewEmail(t testing.TB, certificate *tls.Certificate, start bool) *Email {
	t.Helper()
	m := &Email{
		user: imapmemserver.NewUser(EmailAddress, emailPassword), inbox: make(map[string]*mail.Message), received: make(map[string][]byte),
	}
	m.calls, m.changed, m.next = make(map[string]int), make(chan struct{}), 1000
	var offered *tls.Config
	listen := func() net.Listener {
		l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // ends with the test
		if err != nil {
			t.Fatalf("listen: got %v, want a port", err)
		}
		if certificate != nil && !start {
			return tls.NewListener(l, &tls.Config{Certificates: []tls.Certificate{*certificate}})
		}
		return l
	}
	if certificate != nil {
		if offered = (&tls.Config{Certificates: []tls.Certificate{*certificate}}); !start {
			m.scheme, offered = "s", nil
		}
	}
	m.Renew()
	m.in, m.out = &recording{listen(), m}, listen()
	m.imap = imapserver.New(&imapserver.Options{
		NewSession: func(*imapserver.Conn) (imapserver.Session, *imapserver.GreetingData, error) {
			return &mailbox{imapmemserver.NewUserSession(m.user), m}, nil, nil
		},
		InsecureAuth: true, TLSConfig: offered, Logger: log.New(io.Discard, "", 0),
	})
	sender := smtp.NewServer(smtp.BackendFunc(func(c *smtp.Conn) (smtp.Session, error) { return &submission{m: m, conn: c}, nil }))
	sender.AllowInsecureAuth, sender.TLSConfig, sender.ErrorLog = true, offered, log.New(io.Discard, "", 0)
	done := make(chan struct{}, 2)
	go func() { _ = m.imap.Serve(m.in); done <- struct{}{} }()
	go func() { _ = sender.Serve(m.out); done <- struct{}{} }()
	t.Cleanup(func() {
		m.Interrupt()
		_ = m.imap.Close()
		_ = sender.Close()
		<-done
		<-done
	})
	return m
}

// recording records connections, so that they can be ended.
type recording struct {
	net.Listener
	m *Email
}

func (l *recording) Accept() (net.Conn, error) {
	c, err := l.Listener.Accept()
	if err == nil {
		l.m.mu.Lock()
		l.m.conns = append(l.m.conns, c)
		l.m.mu.Unlock()
	}
	return c, err
}

// mailbox is a session of IMAP.
type mailbox struct {
	*imapmemserver.UserSession
	m *Email
}

// Login implements [imapserver.Session].
func (s *mailbox) Login(user, password string) error {
	s.m.mu.Lock()
	revoked := s.m.revoked
	s.m.mu.Unlock()
	if revoked {
		return imapserver.ErrAuthFailed
	}
	return s.UserSession.Login(user, password)
}

// Fetch implements [imapserver.Session].
func (s *mailbox) Fetch(w *imapserver.FetchWriter, set imap.NumSet, options *imap.FetchOptions) error {
	if f := s.m.fault("FETCH"); f.Drop {
		s.m.Interrupt()
		return errors.New("interrupted")
	}
	return s.UserSession.Fetch(w, set, options)
}

// Idle implements [imapserver.Session]. The library does not send changes that came just before it.
func (s *mailbox) Idle(w *imapserver.UpdateWriter, stop <-chan struct{}) error {
	for {
		s.m.mu.Lock()
		changed := s.m.changed
		s.m.mu.Unlock()
		if err := s.Poll(w, true); err != nil {
			return err
		}
		select {
		case <-stop:
			return nil
		case <-changed:
		}
	}
}

// Renew replaces the mailbox by an empty one with another UIDVALIDITY.
func (m *Email) Renew() {
	_ = m.user.Delete("INBOX")
	_ = m.user.Create("INBOX", nil)
}

// Kind implements [Service].
func (*Email) Kind() string { return "email" }

// URL implements [Service].
func (m *Email) URL() string {
	return "imap" + m.scheme + "://" + m.in.Addr().String() + "?smtp=smtp" + m.scheme + "://" + m.out.Addr().String()
}

// Secret implements [Service].
func (*Email) Secret() string { return EmailAddress + " " + emailPassword }

// User implements [Service].
func (*Email) User(user string) string { return "u" + user + "@example.org" }

// Direct implements [Service].
func (m *Email) Direct(user string) string { return m.User(user) }

// Group implements [Service]: mails have no groups.
func (*Email) Group() string { return "" }

// Mention implements [Service].
func (*Email) Mention() string { return "" }

// Interrupt implements [Service].
func (m *Email) Interrupt() {
	m.mu.Lock()
	list := m.conns
	m.conns = nil
	m.mu.Unlock()
	for _, c := range list {
		_ = c.Close()
	}
}

// Forget implements [Service]: the service has no sessions.
func (m *Email) Forget() { m.Interrupt() }

// Revoke implements [Service].
func (m *Email) Revoke() {
	m.mu.Lock()
	m.revoked = true
	m.mu.Unlock()
	m.Interrupt()
}

// Press implements [Service].
func (*Email) Press(string, string, string, string) {}

// Header returns the header of an answer of a user to the last mail that the user got, with a new
// Message-ID.
func (m *Email) Header(user string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	h := fmt.Sprintf("From: %s\r\nTo: %s\r\nDate: %s\r\nMessage-ID: <%s@example.org>\r\n", m.User(user), EmailAddress,
		time.Now().Format(time.RFC1123Z), m.id("m"))
	if last := m.inbox[m.User(user)]; last != nil {
		id := last.Header.Get("Message-Id")
		h += "Subject: Re: " + last.Header.Get("Subject") + "\r\nIn-Reply-To: " + id + "\r\nReferences: " +
			strings.TrimSpace(last.Header.Get("References")+" "+id) + "\r\n"
	}
	return h
}

// Deliver puts a mail into the mailbox.
func (m *Email) Deliver(raw string) {
	_, _ = m.user.Append("INBOX", &literal{strings.NewReader(raw), int64(len(raw))}, &imap.AppendOptions{})
	m.mu.Lock()
	defer m.mu.Unlock()
	m.wake()
}

type literal struct {
	io.Reader
	size int64
}

func (l *literal) Size() int64 { return l.size }

// Write implements [Service].
func (m *Email) Write(_, user, text string) {
	m.Deliver(m.Header(user) + "Content-Type: text/plain; charset=utf-8\r\n\r\n" + strings.ReplaceAll(text, "\n", "\r\n") +
		"\r\n\r\nOn Fri, 27 Nov 2026 at 10:00, Junctor\r\n<junctor@example.org> wrote:\r\n> /approve apr_of_another once\r\n\r\n-- \r\nSent from a telephone\r\n")
}

// Attach implements [Service].
func (m *Email) Attach(_, user, name, data string) {
	m.Deliver(m.Header(user) + "Content-Type: multipart/mixed; boundary=b\r\n\r\n--b\r\nContent-Type: text/plain\r\n\r\nsee the file\r\n--b\r\n" +
		"Content-Type: application/octet-stream\r\nContent-Disposition: attachment; filename=\"" + name + "\"\r\nContent-Transfer-Encoding: base64\r\n\r\n" +
		base64.StdEncoding.EncodeToString([]byte(data)) + "\r\n--b--\r\n")
}

// fault returns the fault of a request of a method.
func (b *base) fault(method string) (f Fault) {
	b.mu.Lock()
	defer b.mu.Unlock()
	n := b.calls[method]
	b.calls[method]++
	if b.faults != nil {
		f = b.faults(method, n)
	}
	return f
}

// submission is a session of SMTP.
type submission struct {
	m    *Email
	conn *smtp.Conn
	to   []string
	ok   bool
}

// AuthMechanisms implements [smtp.AuthSession].
func (*submission) AuthMechanisms() []string { return []string{sasl.Plain} }

// Auth implements [smtp.AuthSession].
func (s *submission) Auth(string) (sasl.Server, error) {
	return sasl.NewPlainServer(func(_, user, password string) error {
		s.m.mu.Lock()
		defer s.m.mu.Unlock()
		if s.ok = user == EmailAddress && password == emailPassword && !s.m.revoked; !s.ok {
			return smtp.ErrAuthFailed
		}
		return nil
	}), nil
}

// Mail implements [smtp.Session].
func (s *submission) Mail(from string, _ *smtp.MailOptions) error {
	if !s.ok || from != EmailAddress {
		return smtp.ErrAuthRequired
	}
	return nil
}

// Rcpt implements [smtp.Session].
func (s *submission) Rcpt(to string, _ *smtp.RcptOptions) error {
	s.to = append(s.to, to)
	return nil
}

// Data implements [smtp.Session].
func (s *submission) Data(r io.Reader) error {
	f := s.m.fault("DATA")
	raw, err := io.ReadAll(r)
	switch {
	case err != nil:
		return err
	case f.Drop:
		_ = s.conn.Conn().Close()
		return nil
	case f.Status >= 500:
		return &smtp.SMTPError{Code: 554, EnhancedCode: smtp.EnhancedCode{5, 7, 1}, Message: "refused"}
	case f.Status != 0:
		return &smtp.SMTPError{Code: 451, EnhancedCode: smtp.EnhancedCode{4, 7, 1}, Message: "try later"}
	}
	err = s.m.store(raw, s.to)
	if f.Cut {
		_ = s.conn.Conn().Close()
	}
	return err
}

// Reset implements [smtp.Session].
func (s *submission) Reset() { s.to = nil }

// Logout implements [smtp.Session].
func (*submission) Logout() error { return nil }

// store delivers a mail of the account. One with a Message-ID that was delivered is left out, as
// mail systems do.
func (m *Email) store(raw []byte, to []string) error {
	parsed, err := mail.ReadMessage(bytes.NewReader(raw))
	if err != nil {
		return err
	}
	bare := func(header string) string { return strings.Trim(parsed.Header.Get(header), "<>") }
	out := &Message{ID: bare("Message-Id"), Answers: bare("In-Reply-To"), Thread: bare("References"), key: bare("Message-Id")}
	if err := out.part(textproto.MIMEHeader(parsed.Header), parsed.Body); err != nil {
		return err
	}
	out.Text = strings.TrimSpace(strings.ReplaceAll(out.Text, "\r\n", "\n"))
	m.mu.Lock()
	defer m.mu.Unlock()
	m.received[out.ID] = raw
	for _, one := range to {
		out.Conversation = one
		if m.put(out) == out {
			m.inbox[one] = parsed
		}
	}
	return nil
}

// Raw returns a mail of the account by its Message-ID.
func (m *Email) Raw(id string) string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return string(slices.Clone(m.received[id]))
}

// part reads a part of a mail.
func (m *Message) part(h textproto.MIMEHeader, body io.Reader) error {
	kind, params, err := mime.ParseMediaType(h.Get("Content-Type"))
	if err != nil {
		return err
	}
	if strings.HasPrefix(kind, "multipart/") {
		for parts := multipart.NewReader(body, params["boundary"]); ; {
			p, err := parts.NextRawPart()
			if errors.Is(err, io.EOF) {
				return nil
			}
			if err == nil {
				err = m.part(p.Header, p)
			}
			if err != nil {
				return err
			}
		}
	}
	switch strings.ToLower(h.Get("Content-Transfer-Encoding")) {
	case "quoted-printable":
		body = quotedprintable.NewReader(body)
	case "base64":
		body = base64.NewDecoder(base64.StdEncoding, body)
	}
	data, err := io.ReadAll(body)
	if _, params, _ := mime.ParseMediaType(h.Get("Content-Disposition")); params["filename"] != "" {
		m.File, m.Data = params["filename"], string(data)
		return err
	}
	m.Text += string(data)
	return err
}
