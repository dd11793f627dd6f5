package email

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"net"
	"net/textproto"
	"strconv"
	"strings"

	"github.com/wneessen/go-mail"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/chat/channels"
)

const reLength = len("Re: ")

// Do implements [channels.Channel]. A mail cannot be changed: the decision of an approval is another
// one, in the same thread.
func (c *channel) Do(ctx context.Context, op channels.Op) (string, error) {
	if op.Verb != channels.VerbSend && op.Verb != channels.VerbEdit {
		return "", nil // the acknowledgement of a press: mails have no buttons
	}
	if !addressForm.MatchString(op.Conversation) {
		return "", capability.Errorf(capability.CodeInvalidInput, "channel.send", "the conversation is not an address")
	}
	login, err := c.credentials()
	if err != nil {
		return "", err
	}
	if op.At.IsZero() {
		op.At = c.now()
	}
	id := login.id(op.Conversation, op.Key, op.At)
	m, err := c.compose(login, op, id)
	if err != nil {
		return "", capability.Wrap(capability.CodeInvalidInput, "channel.send", "the mail cannot be made", err)
	}
	return login.ref(id, op.Conversation), c.deliver(ctx, login, m)
}

// compose makes the mail of an operation.
func (c *channel) compose(login *login, op channels.Op, id string) (*mail.Msg, error) {
	m := mail.NewMsg(mail.WithNoDefaultUserAgent())
	if err := errors.Join(m.From(login.account), m.To(op.Conversation)); err != nil {
		return nil, err
	}
	m.SetMessageIDWithValue(id)
	m.SetDateWithValue(op.At)
	first, _, _ := strings.Cut(strings.TrimSpace(op.Text), "\n")
	if op.File != nil {
		first = op.File.Name
	}
	first = text.ShortenRunes(text.Visible(text.OneLine(first)), maxSubject)
	if op.Verb == channels.VerbEdit { // the last paragraph is what changed
		op.Text = op.Text[max(0, strings.LastIndex(op.Text, "\n\n")):]
	}
	root, parent := login.find(op.Thread, op.Conversation), login.find(op.Message, op.Conversation)
	c.mu.Lock()
	known := c.topics[op.Conversation+" "+op.Thread]
	if op.Thread == "" && parent != "" {
		known = c.topics[op.Conversation+" "+op.Message]
	}
	c.mu.Unlock()
	parent = cmp.Or(parent, known.last, root)
	subject := cmp.Or(known.subject, first, "junctor")
	if (known.subject != "" || op.Verb == channels.VerbEdit) && !strings.EqualFold(subject[:min(len(subject), reLength)], "Re: ") {
		subject = "Re: " + subject
	}
	m.Subject(subject)
	// Programs do not answer a mail of a program, and do not show it differently (RFC 3834).
	how := "auto-generated"
	if parent != "" {
		how = "auto-replied"
		m.SetGenHeader(mail.HeaderInReplyTo, "<"+parent+">")
		references := "<" + parent + ">"
		if root != "" && root != parent {
			references = "<" + root + "> " + references
		}
		m.SetGenHeader(mail.HeaderReferences, references)
	}
	m.SetGenHeader("Auto-Submitted", how)
	m.SetGenHeader("X-Auto-Response-Suppress", "OOF, AutoReply") // the same for Exchange
	m.SetBodyString(mail.TypeTextPlain, strings.TrimSpace(op.Text)+"\n")
	if op.File != nil {
		m.AttachReadSeeker(fileName(op.File.Name), bytes.NewReader(op.File.Data), mail.WithFileContentType(mail.TypeAppOctetStream))
	}
	return m, nil
}

// fileName returns a name that can be in a header.
func fileName(name string) string {
	return cmp.Or(strings.Map(func(r rune) rune {
		if strings.ContainsRune(`/\"`, r) {
			return '_'
		}
		return r
	}, text.CutBytes(text.Visible(text.OneLine(name)), 150)), defaultName)
}

// deliver passes a mail to the server that sends.
func (c *channel) deliver(ctx context.Context, login *login, m *mail.Msg) error {
	const what = "the SMTP server"
	ctx, cancel := context.WithTimeout(ctx, sendTimeout)
	defer cancel() // closes the connection
	port, err := strconv.Atoi(c.out.port)
	if err != nil {
		return unavailable(ctx, what, err)
	}
	policy, auth := mail.TLSMandatory, mail.SMTPAuthAutoDiscover
	switch {
	case c.out.tls: // the connection is encrypted by dial
		policy = mail.TLSOpportunistic
	case c.out.plain:
		policy, auth = mail.NoTLS, mail.SMTPAuthPlainNoEnc
	}
	client, err := mail.NewClient(c.out.host, mail.WithPort(port), mail.WithTimeout(sendTimeout), mail.WithTLSPolicy(policy),
		mail.WithTLSConfig(c.tlsConfig(c.out)), mail.WithSMTPAuth(auth), mail.WithUsername(login.user), mail.WithPassword(login.password),
		mail.WithHELO(domain(login.account)), mail.WithoutNoop(),
		mail.WithDialContextFunc(func(dial context.Context, _, _ string) (net.Conn, error) {
			conn, err := c.dial(dial, c.out)
			if err == nil { // the library takes no context for what follows
				context.AfterFunc(ctx, func() { _ = conn.Close() })
			}
			return conn, err
		}))
	if err != nil {
		return unavailable(ctx, what, err)
	}
	smtp, err := client.DialToSMTPClientWithContext(ctx)
	if err != nil {
		var answer *textproto.Error
		if errors.As(err, &answer) && (answer.Code < 500 || loginRefused(answer.Code)) { // others are not about the mail
			return answered(ctx, answer.Code, answer.Msg, err)
		}
		return unavailable(ctx, what, err)
	}
	err = client.SendWithSMTPClient(smtp, m)
	var failure *mail.SendError
	switch {
	case err == nil, m.IsDelivered():
		_ = client.CloseWithSMTPClient(smtp)
		return nil
	case !errors.As(err, &failure):
		return unavailable(ctx, what, err)
	case failure.ErrorCode() == 0 && failure.Reason == mail.ErrSMTPDataClose:
		return channels.DeliveryUnknown(nil)
	}
	reason, _, _ := strings.Cut(failure.Error(), ", affected ") // what follows names the mail, whose id is secret
	return answered(ctx, failure.ErrorCode(), reason, err)
}

func loginRefused(code int) bool { return code == 530 || code == 534 || code == 535 || code == 538 }

// answered returns the error for an answer of the server that sends.
func answered(ctx context.Context, code int, reason string, err error) error {
	switch {
	case loginRefused(code):
		return capability.Errorf(capability.CodeUnauthenticated, "channel.send", "the SMTP server refuses the address or the password")
	case code >= 400 && code < 500:
		e := capability.Errorf(capability.CodeOverloaded, "channel.send", "the SMTP server takes no mail at present (%d)", code)
		e.RetryAfter = busyDelay
		return e
	case code >= 500:
		return capability.Errorf(capability.CodeFailed, "channel.send", "the SMTP server refuses the mail: %s",
			text.ShortenRunes(text.Visible(text.OneLine(reason)), maxReason))
	}
	return unavailable(ctx, "the SMTP server", err)
}
