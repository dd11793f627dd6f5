// Package email is e-mail as a chat service: IMAP in, SMTP out. The sender of a mail is a name that
// anyone can write. A mail counts as its sender's only if it answers a mail of the account that was
// sent to that address, because the id of such a mail is unguessable (see signer). A mail with a
// pairing code is accepted without that.
package email

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"encoding/hex"
	"errors"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/emersion/go-imap/v2"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/secret"
)

// Kind describes the service.
func Kind() channels.Kind {
	return channels.Kind{
		Name: "email", Label: "E-mail",
		Blurb: "Make a mailbox for the agent, store its address and password as a secret with a space between them, and name its servers: " +
			"imaps://imap.example.org?smtp=smtps://smtp.example.org",
		Actions:   []capability.Action{"message.send", "message.reply", "message.read", "message.attachment.fetch"},
		NoButtons: true, OnceTTL: onceTTL, MaxText: 50_000, MaxFile: 20 << 20, Rate: 1, NeedsURL: true, ParsesURL: true, ID: addressForm,
		Group: func(string) bool { return false },
		Open: func(s channels.Settings) (channels.Channel, error) {
			in, out, err := parseServers(s.Account.URL)
			if err != nil {
				return nil, err
			}
			return &channel{secret: s.Secret, in: in, out: out, topics: make(map[string]topic), reading: make(chan struct{}, 2), now: time.Now}, nil
		},
	}
}

// server is the address of a mail server, and how it is encrypted.
type server struct {
	host, port string
	tls        bool // from the beginning
	plain      bool // never: a loopback address
}

// parseServers reads imaps://HOST[:PORT]?smtp=smtps://HOST[:PORT]. The schemes imap and smtp
// require STARTTLS, except for loopback addresses, which are not encrypted.
func parseServers(s string) (in, out server, err error) {
	u, err := url.Parse(s)
	if err == nil {
		query := u.Query()
		in, err = parseServer(u, "imap", "993", "143")
		u.RawQuery = ""
		if smtp := query["smtp"]; len(query) != 1 || len(smtp) != 1 || strings.Trim(u.Path, "/") != "" {
			err = errors.New("smtp")
		} else if u, e := url.Parse(smtp[0]); err == nil {
			if err = e; err == nil {
				out, err = parseServer(u, "smtp", "465", "587")
			}
		}
	}
	if err != nil {
		return in, out, capability.Errorf(capability.CodeInvalidInput, "channels.add",
			"the URL of an e-mail account is imaps://HOST?smtp=smtps://HOST, without a user and a password; imap:// and smtp:// use STARTTLS")
	}
	return in, out, nil
}

func parseServer(u *url.URL, scheme, tlsPort, startPort string) (server, error) {
	s := server{host: u.Hostname(), port: u.Port(), tls: u.Scheme == scheme+"s"}
	if s.host == "" || u.User != nil || u.Opaque != "" || !s.tls && u.Scheme != scheme {
		return s, errors.New(scheme)
	}
	if addr, err := netip.ParseAddr(s.host); err == nil && addr.IsLoopback() {
		s.plain = !s.tls
	}
	port := startPort
	if s.tls {
		port = tlsPort
	}
	s.port = cmp.Or(s.port, port)
	return s, nil
}

// channel is one mailbox. stuck is used by Run only.
type channel struct {
	secret  func() (secret.Value, error)
	in, out server
	roots   *x509.CertPool // nil: those of the system
	reading chan struct{}  // a slot for each connection that reads for a call
	now     func() time.Time
	stuck   struct {
		uid   imap.UID
		tries int
	}

	mu     sync.Mutex
	used   string // the secret of login
	login  *login
	topics map[string]topic
}

// login is the content of the secret.
type login struct {
	*signer
	user, password string
}

// topic is what answers in a thread need of its last mail.
type topic struct{ subject, last string }

// credentials returns the address and the password of the account.
func (c *channel) credentials() (*login, error) {
	value, err := c.secret()
	if err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	raw := value.Reveal()
	if c.login != nil && c.used == raw {
		return c.login, nil
	}
	user, password, ok := strings.Cut(strings.TrimRight(raw, "\r\n"), " ")
	address := strings.ToLower(user)
	if !ok || password == "" || !addressForm.MatchString(address) {
		return nil, capability.Errorf(capability.CodeUnauthenticated, "channel",
			"the secret is not an address and a password with a space between them")
	}
	s, err := newSigner(address, password)
	if err != nil {
		return nil, err
	}
	c.used, c.login = raw, &login{s, user, password}
	return c.login, nil
}

// dial connects to a server, which cannot be reached if it does not answer in time, or is not the
// one that its certificate names.
func (c *channel) dial(ctx context.Context, s server) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	dialer := &net.Dialer{}
	address := net.JoinHostPort(s.host, s.port)
	if s.tls {
		return (&tls.Dialer{NetDialer: dialer, Config: c.tlsConfig(s)}).DialContext(ctx, "tcp", address)
	}
	return dialer.DialContext(ctx, "tcp", address)
}

func (c *channel) tlsConfig(s server) *tls.Config {
	return &tls.Config{ServerName: s.host, MinVersion: tls.VersionTLS12, RootCAs: c.roots}
}

// unavailable returns the error of a server that cannot be reached, or the end of ctx.
func unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var certificate *tls.CertificateVerificationError
	if errors.As(err, &certificate) {
		what += " has a certificate that is not valid for it"
	} else {
		what += " cannot be reached, or ended the connection"
	}
	return capability.Errorf(capability.CodeUnavailable, "channel", "%s", what)
}

// Run implements [channels.Channel]. The cursor is UIDVALIDITY:UID of the last mail.
func (c *channel) Run(ctx context.Context, cursor string, connected func(string), receive channels.Receive) error {
	login, err := c.credentials()
	if err != nil {
		return err
	}
	box, err := c.openBox(ctx, login)
	if err != nil {
		return err
	}
	defer box.close()
	validity, last := parseCursor(cursor)
	if validity != box.validity {
		next := box.cursor(box.next - 1)
		if err := receive(ctx, next, nil); err != nil {
			return err
		}
		if cursor != "" { // reported as the reason why the account was away
			return capability.Errorf(capability.CodeUnavailable, "channel",
				"the server replaced the mailbox (another UIDVALIDITY); mails that it had before are not read")
		}
		last = box.next - 1
	}
	connected(login.account)
	for ctx.Err() == nil {
		uids, err := box.after(ctx, last)
		if err != nil {
			return err
		}
		for _, uid := range uids {
			list, err := c.mail(ctx, box, login, uid)
			if err != nil {
				return err
			}
			if err := receive(ctx, box.cursor(uid), list); err != nil {
				return err
			}
			last = uid
		}
		if len(uids) == 0 {
			if err := box.wait(ctx); err != nil {
				return err
			}
		}
	}
	return ctx.Err()
}

func parseCursor(cursor string) (validity uint32, uid imap.UID) {
	before, after, _ := strings.Cut(cursor, ":")
	v, err := strconv.ParseUint(before, 10, 32)
	n, err2 := strconv.ParseUint(after, 10, 32)
	if err != nil || err2 != nil {
		return 0, 0
	}
	return uint32(v), imap.UID(n)
}

// mail returns the update of a mail, or none if the mail is not a person's. A mail that cannot be
// read is an update of a sender that is not paired, so that it is recorded and stops none behind it.
func (c *channel) mail(ctx context.Context, box *box, login *login, uid imap.UID) (list []channels.Update, err error) {
	if c.stuck.uid != uid {
		c.stuck.uid, c.stuck.tries = uid, 0
	}
	defer func() {
		if err != nil {
			c.stuck.tries++
		}
	}()
	u := channels.Update{
		ID: box.cursor(uid), Kind: channels.Wrote, Conversation: "unknown", ConversationKind: "group", User: "unknown",
		ToMe: true, Unproved: true,
	}
	if c.stuck.tries >= maxTries {
		return []channels.Update{u}, nil
	}
	e, size, err := box.envelope(ctx, uid)
	switch {
	case errors.Is(err, errNoMail) || e.automatic || e.from == login.account:
		return nil, nil
	case errors.Is(err, errMalformed):
		return []channels.Update{u}, nil
	case err != nil:
		return nil, err
	}
	// The conversation is the one with the sender, also if others got the mail, because answers go to
	// the sender alone.
	u.Conversation, u.User, u.UserName, u.ConversationKind = e.from, e.from, e.name, "dm"
	u.Unproved = !login.proved(e, c.now())
	u.Message, u.Thread = login.ref(e.id, e.from), login.ref(e.thread(), e.from)
	if e.id != "" { // the same mail may come twice
		sum := sha256.Sum256([]byte(e.from + " " + e.id + " " + strconv.FormatBool(u.Unproved)))
		u.ID = "mail " + hex.EncodeToString(sum[:])
	}
	limit := int64(maxMail)
	if u.Unproved {
		limit = maxUnproved
	} else if size > maxMail {
		u.Files = []channels.File{{Name: cmp.Or(e.subject, defaultName), Size: size}}
		return []channels.Update{u}, nil
	}
	d, err := box.parts(ctx, uid, limit, -1, 0)
	if errors.Is(err, errNoMail) {
		return nil, nil
	}
	if err != nil && !errors.Is(err, errMalformed) {
		return nil, err
	}
	if d != nil {
		u.Text, u.Files = d.text(), d.files
	}
	c.remember(e, u.Thread, u.Unproved)
	return []channels.Update{u}, nil
}

// proved reports whether the sender of a mail reads the mailbox of its address.
func (l *login) proved(e envelope, now time.Time) bool {
	return slices.ContainsFunc(e.parents, func(id string) bool { return l.proves(id, e.from, now) })
}

// remember stores the topic of a mail for the answers in its thread. A mail whose sender is not proved
// changes none that is known, nor that of mails outside of a thread, such as approvals.
func (c *channel) remember(e envelope, thread string, unproved bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, known := c.topics[e.from+" "+thread]; thread == "" || unproved && known {
		return
	}
	if len(c.topics) >= maxTopics {
		clear(c.topics)
	}
	c.topics[e.from+" "+thread] = topic{text.CutRunes(text.Visible(text.OneLine(e.subject)), 200), e.id}
}

// reader opens the mailbox for a call.
func (c *channel) reader(ctx context.Context) (_ *box, _ *login, release func(), err error) {
	login, err := c.credentials()
	if err != nil {
		return nil, nil, nil, err
	}
	select {
	case c.reading <- struct{}{}:
	case <-ctx.Done():
		return nil, nil, nil, context.Cause(ctx)
	}
	box, err := c.openBox(ctx, login)
	if err != nil {
		<-c.reading
		return nil, nil, nil, err
	}
	return box, login, func() {
		box.close()
		<-c.reading
	}, nil
}

// Read implements [channels.Reader]. It returns the mails in the inbox that prove to be the
// person's. Attachments behind the first 512 KiB of a mail are left out.
func (c *channel) Read(ctx context.Context, conversation, before string, _ bool, limit int) ([]channels.Message, error) {
	box, login, release, err := c.reader(ctx)
	if err != nil {
		return nil, err
	}
	defer release()
	list, err := box.search(ctx, "From", conversation)
	if err == nil && before != "" {
		var at []imap.UID
		at, err = box.search(ctx, "Message-Id", login.find(before, conversation))
		list = slices.DeleteFunc(list, func(uid imap.UID) bool { return len(at) == 0 || uid >= at[0] })
	}
	if err != nil {
		return nil, err
	}
	var out []channels.Message
	slices.Reverse(list)
	for _, uid := range list[:min(len(list), maxScanned)] {
		e, _, err := box.envelope(ctx, uid)
		var d *decoder
		if err == nil && e.from == conversation && !e.automatic && login.proved(e, c.now()) {
			d, err = box.parts(ctx, uid, maxListed, -1, 0)
		}
		if err != nil && !errors.Is(err, errNoMail) && !errors.Is(err, errMalformed) {
			return nil, err
		}
		if d == nil {
			continue
		}
		out = append(out, channels.Message{
			ID: login.ref(e.id, e.from), User: e.from, UserName: e.name, Text: d.text(), Thread: login.ref(e.thread(), e.from), At: e.date,
			Files: d.files,
		})
		if len(out) >= limit {
			break
		}
	}
	return out, nil
}

// Private implements [channels.Fetcher].
func (*channel) Private(context.Context, string) (bool, error) { return true, nil }

// Fetch implements [channels.Reader].
func (c *channel) Fetch(ctx context.Context, conversation, message string, index, limit int) (channels.File, error) {
	box, login, release, err := c.reader(ctx)
	if err != nil {
		return channels.File{}, err
	}
	defer release()
	list, err := box.search(ctx, "Message-Id", login.find(message, conversation))
	if err != nil {
		return channels.File{}, err
	}
	for _, uid := range list[:min(len(list), maxTries)] {
		e, size, err := box.envelope(ctx, uid)
		if err != nil && !errors.Is(err, errNoMail) && !errors.Is(err, errMalformed) {
			return channels.File{}, err
		}
		if err != nil || e.from != conversation || login.ref(e.id, e.from) != message || !login.proved(e, c.now()) {
			continue
		}
		if size > maxMail {
			return channels.File{}, tooLarge(size, maxMail)
		}
		d, err := box.parts(ctx, uid, maxMail, index, limit)
		if err != nil {
			return channels.File{}, err
		}
		if index < 0 || index >= len(d.files) {
			break
		}
		f := d.files[index]
		if f.Size > int64(limit) {
			return channels.File{}, tooLarge(f.Size, limit)
		}
		if d.failure != nil {
			return channels.File{}, capability.Errorf(capability.CodeFailed, "message", "the attachment is damaged")
		}
		return f, nil
	}
	return channels.File{}, channels.NoAttachment(index)
}

func tooLarge(size int64, limit int) error {
	return capability.Errorf(capability.CodeTooLarge, "message", "the attachment has %d bytes; at most %d are read", size, limit)
}

var _ channels.Reader = (*channel)(nil)
