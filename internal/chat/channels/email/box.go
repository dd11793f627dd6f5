package email

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"time"

	"github.com/emersion/go-imap/v2"
	"github.com/emersion/go-imap/v2/imapclient"
	"github.com/emersion/go-message"

	"github.com/junctor-run/junctor/capability"
)

// errNoMail is the error of a mail that the mailbox does not have any more.
var errNoMail = errors.New("the mail was removed")

// box is a connection to the inbox of an account, which is never changed.
type box struct {
	client   *imapclient.Client
	conn     net.Conn
	validity uint32
	next     imap.UID
	idles    bool
	news     chan struct{} // capacity 1: the number of mails changed
}

// openBox connects to the inbox.
func (c *channel) openBox(ctx context.Context, login *login) (_ *box, err error) {
	const what = "the IMAP server"
	conn, err := c.dial(ctx, c.in)
	if err != nil {
		return nil, unavailable(ctx, what, err)
	}
	b := &box{conn: conn, news: make(chan struct{}, 1)}
	options := &imapclient.Options{
		TLSConfig: c.tlsConfig(c.in),
		UnilateralDataHandler: &imapclient.UnilateralDataHandler{Mailbox: func(*imapclient.UnilateralDataMailbox) {
			select {
			case b.news <- struct{}{}:
			default:
			}
		}},
	}
	var inbox *imap.SelectData
	err = b.within(ctx, callTimeout, func() (err error) {
		if c.in.tls || c.in.plain {
			b.client = imapclient.New(conn, options)
			err = b.client.WaitGreeting()
		} else {
			b.client, err = imapclient.NewStartTLS(conn, options)
		}
		if err != nil {
			return unavailable(ctx, what, err)
		}
		if err := b.client.Login(login.user, login.password).Wait(); err != nil {
			return refused(ctx, err)
		}
		caps := b.client.Caps()
		b.idles = caps.Has(imap.CapIdle) || caps.Has(imap.CapIMAP4rev2)
		inbox, err = b.client.Select("INBOX", &imap.SelectOptions{ReadOnly: true}).Wait()
		return err
	})
	if err == nil && (inbox.UIDValidity == 0 || inbox.UIDNext == 0) {
		err = capability.Errorf(capability.CodeUnavailable, "channel", "%s gives the mails of the inbox no lasting numbers", what)
	}
	if err != nil {
		b.close()
		if capability.CodeOf(err) == capability.CodeUnauthenticated {
			return nil, err
		}
		return nil, unavailable(ctx, what, err)
	}
	b.validity, b.next = inbox.UIDValidity, inbox.UIDNext
	return b, nil
}

// refused returns the error of a login.
func refused(ctx context.Context, err error) error {
	var answer *imap.Error
	if errors.As(err, &answer) && answer.Type == imap.StatusResponseTypeNo && answer.Code != imap.ResponseCodeUnavailable &&
		answer.Code != imap.ResponseCodeInUse && answer.Code != imap.ResponseCodeLimit {
		return capability.Errorf(capability.CodeUnauthenticated, "channel", "the IMAP server refuses the address or the password")
	}
	return unavailable(ctx, "the IMAP server", err)
}

func (b *box) close() {
	_ = b.conn.Close()
	if b.client != nil {
		_ = b.client.Close() // waits for the goroutine that reads
	}
}

func (b *box) cursor(uid imap.UID) string { return fmt.Sprintf("%d:%d", b.validity, uid) }

// within calls f, and ends the connection if f takes too long or ctx ends.
func (b *box) within(ctx context.Context, timeout time.Duration, f func() error) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() { _ = b.conn.Close() })
	err := f()
	if !stop() && err == nil {
		err = ctx.Err()
	}
	return err
}

// call does so for a command. An error is one of the connection, or errNoMail if the server refuses
// the command.
func (b *box) call(ctx context.Context, timeout time.Duration, f func() error) error {
	err := b.within(ctx, timeout, f)
	var answer *imap.Error
	switch {
	case err == nil, errors.Is(err, errMalformed):
		return err
	case errors.As(err, &answer) && answer.Type == imap.StatusResponseTypeNo, errors.Is(err, errNoMail):
		return errNoMail
	}
	return unavailable(ctx, "the IMAP server", err)
}

// after returns the mails behind one, in order.
func (b *box) after(ctx context.Context, last imap.UID) (list []imap.UID, err error) {
	err = b.call(ctx, callTimeout, func() error {
		found, err := b.client.UIDSearch(&imap.SearchCriteria{UID: []imap.UIDSet{{imap.UIDRange{Start: last + 1}}}}, nil).Wait()
		if err == nil {
			list = found.AllUIDs()
		}
		return err
	})
	list = slices.DeleteFunc(list, func(uid imap.UID) bool { return uid <= last }) // "5:*" is also the last mail, if that is 4
	slices.Sort(list)
	if errors.Is(err, errNoMail) {
		err = capability.Errorf(capability.CodeUnavailable, "channel", "the IMAP server refuses to search the inbox")
	}
	return list, err
}

// search returns the mails with a text in a header, in order. The text may be a part of the header.
func (b *box) search(ctx context.Context, header, text string) (list []imap.UID, err error) {
	if text == "" {
		return nil, nil
	}
	err = b.call(ctx, callTimeout, func() error {
		found, err := b.client.UIDSearch(&imap.SearchCriteria{Header: []imap.SearchCriteriaHeaderField{{Key: header, Value: text}}}, nil).Wait()
		if err == nil {
			list = found.AllUIDs()
		}
		return err
	})
	slices.Sort(list)
	return list, err
}

// wait waits for a change of the inbox, or for a while.
func (b *box) wait(ctx context.Context) error {
	interval := pollInterval
	var idle *imapclient.IdleCommand
	if b.idles {
		interval = idleInterval
		if err := b.call(ctx, callTimeout, func() (err error) { idle, err = b.client.Idle(); return err }); err != nil {
			return err
		}
	}
	timer := time.NewTimer(interval)
	defer timer.Stop()
	select {
	case <-b.news:
	case <-timer.C:
	case <-b.client.Closed():
	case <-ctx.Done():
		return ctx.Err()
	}
	return b.call(ctx, callTimeout, func() error {
		if idle == nil {
			return b.client.Noop().Wait()
		}
		if err := idle.Close(); err != nil {
			return err
		}
		return idle.Wait()
	})
}

// fetch reads a section of a mail, of which use gets at most limit bytes, and returns the size of
// the mail.
func (b *box) fetch(ctx context.Context, timeout time.Duration, uid imap.UID, part imap.PartSpecifier, limit int64,
	use func(io.Reader) error,
) (size int64, err error) {
	err = b.call(ctx, timeout, func() error {
		var failure error
		found := false
		cmd := b.client.Fetch(imap.UIDSetNum(uid), &imap.FetchOptions{
			UID: true, RFC822Size: true,
			BodySection: []*imap.FetchItemBodySection{{Specifier: part, Peek: true, Partial: &imap.SectionPartial{Size: limit}}},
		})
		for m := cmd.Next(); m != nil; m = cmd.Next() {
			for item := m.Next(); item != nil; item = m.Next() {
				switch item := item.(type) {
				case imapclient.FetchItemDataRFC822Size:
					size = item.Size
				case imapclient.FetchItemDataBodySection:
					if item.Literal != nil && !found {
						found = true
						failure = use(io.LimitReader(item.Literal, limit))
					}
				}
			}
		}
		if err := cmd.Close(); err != nil {
			return err
		}
		if !found {
			return errNoMail
		}
		return failure
	})
	return size, err
}

// envelope reads the header of a mail. The error is errNoMail or errMalformed, or one of the
// connection.
func (b *box) envelope(ctx context.Context, uid imap.UID) (e envelope, size int64, err error) {
	size, err = b.fetch(ctx, callTimeout, uid, imap.PartSpecifierHeader, maxHeader+1, func(r io.Reader) error {
		raw, err := io.ReadAll(r)
		if err != nil {
			return err
		}
		m, err := message.ReadWithOptions(bytes.NewReader(raw), &message.ReadOptions{MaxHeaderBytes: maxHeader})
		if m == nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		e, err = readEnvelope(m)
		return err
	})
	return e, size, err
}

// parts reads the parts of a mail, at most limit bytes. The content of the file with the index want
// is kept, at most keep bytes.
func (b *box) parts(ctx context.Context, uid imap.UID, limit int64, want, keep int) (d *decoder, err error) {
	_, err = b.fetch(ctx, bodyTimeout, uid, imap.PartSpecifierNone, limit, func(r io.Reader) (err error) {
		if _, d, err = decode(r, want, keep); err != nil {
			return fmt.Errorf("%w: %w", errMalformed, err)
		}
		return nil
	})
	return d, err
}
