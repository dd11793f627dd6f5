package channels

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/junctor-run/junctor/capability"
)

// Message is a message of a conversation.
type Message struct {
	ID, User, UserName, Text string
	Thread                   string
	At                       time.Time // zero: unknown
	Files                    []File    // without their content
}

// Reader is a channel whose conversations can be read. Its errors are those of [Channel].
type Reader interface {
	Fetcher
	// Read returns at most limit messages of a conversation, the newest first: those before the
	// message before, unless it is "", or the pinned ones.
	Read(ctx context.Context, conversation, before string, pinned bool, limit int) ([]Message, error)
}

// Fetcher is a channel whose attachments can be fetched.
type Fetcher interface {
	// Private reports whether a conversation is one with a single person, or was.
	Private(ctx context.Context, conversation string) (bool, error)
	// Fetch returns an attachment of a message. The error is too_large for more than limit bytes.
	Fetch(ctx context.Context, conversation, message string, index, limit int) (File, error)
}

// read carries out message.read, message.pins.list and message.attachment.fetch.
func (c *connection) read(ctx context.Context, k capability.Call, in input) (capability.Result, error) {
	reader, readable := c.channel.(Reader)
	fetcher, fetchable := c.channel.(Fetcher)
	fetch := k.Action == "message.attachment.fetch"
	if !readable && !fetch || !fetchable {
		return capability.Result{}, capability.UnknownCapability(k.Member)
	}
	var op Op
	var err error
	ref := in.text("messageRef")
	switch to := in.text("conversation"); {
	case ref != "":
		conversation, id, found := cutLast(ref)
		if !found {
			return capability.Result{}, badReference(k.Action, ref)
		}
		op.Message = id
		op.Conversation, err = c.conversation(conversation)
	case to != "":
		op.Conversation, err = c.conversation(to)
	default:
		err = c.current(&op, k.Context)
	}
	if err == nil {
		err = c.readable(ctx, k, op.Conversation)
	}
	if err != nil {
		return capability.Result{}, err
	}
	if fetch {
		index, _ := in["index"].(float64)
		return c.fetch(ctx, k, fetcher, op, int(index))
	}
	_, before, _ := cutLast(in.text("before"))
	if in.text("before") != "" && before == "" {
		return capability.Result{}, badReference(k.Action, in.text("before"))
	}
	limit := defaultRead
	if n, ok := in["limit"].(float64); ok {
		limit = min(int(n), maxRead)
	}
	list, err := reader.Read(ctx, op.Conversation, before, k.Action == "message.pins.list", limit)
	if err != nil {
		return capability.Result{}, err
	}
	out := make([]map[string]any, len(list))
	for i, m := range list {
		out[i] = c.described(op.Conversation, m)
	}
	return result(map[string]any{"messages": out}, "")
}

// described returns a message as callers get it.
func (c *connection) described(conversation string, m Message) map[string]any {
	files := make([]map[string]any, len(m.Files))
	for i, f := range m.Files {
		files[i] = map[string]any{"index": i, "name": f.Name, "size": f.Size}
	}
	out := map[string]any{
		"messageRef": c.messageRef(conversation, m.ID), "user": m.User, "userName": m.UserName, "text": m.Text, "attachments": files,
	}
	if !m.At.IsZero() {
		out["sentAt"] = m.At.UTC().Format(time.RFC3339)
	}
	if m.Thread != "" {
		out["thread"] = m.Thread
	}
	return out
}

func badReference(action capability.Action, ref string) error {
	return capability.Errorf(capability.CodeInvalidInput, string(action), "%.80q is not a reference of a message", ref).
		With("invalid_reference", "use the messageRef that an earlier call returned")
}

// readable reports an error for a paired person's own conversation with the account, unless the call
// is the person's or an operator's: approvals of others are shown there.
func (c *connection) readable(ctx context.Context, k capability.Call, conversation string) error {
	if k.Principal.Role == capability.RoleAdmin || k.Principal.Role == capability.RoleOperator {
		return nil
	}
	if c.guestsOnly(k, conversation) {
		return capability.Errorf(capability.CodeDenied, string(k.Action), "guests read only the conversation in which they write").
			With("not_yours", "ask there")
	}
	people, err := c.hub.cfg.Store.People(ctx, c.account.Ref)
	if err != nil {
		return err
	}
	var of *Person
	for i, p := range people {
		if p.Conversation == conversation {
			of = &people[i]
		}
	}
	private := of != nil
	if from, ok := c.channel.(Fetcher); ok && !private { // perhaps of a person who is not paired any more
		if private, err = from.Private(ctx, conversation); err != nil {
			return err
		}
	}
	if private && (of == nil || of.Principal != k.Principal.ID && of.Principal != k.Principal.Owner()) {
		return capability.Errorf(capability.CodeDenied, string(k.Action), "this is another person's conversation with %s", c.account.Ref).
			With("not_yours", "read a conversation of yours or of a group")
	}
	return nil
}

// fetch stores an attachment as an artifact of the call. A short text is part of the result.
func (c *connection) fetch(ctx context.Context, k capability.Call, from Fetcher, op Op, index int) (capability.Result, error) {
	f, err := from.Fetch(ctx, op.Conversation, op.Message, index, MaxFile)
	if err != nil {
		return capability.Result{}, err
	}
	ref, err := c.hub.cfg.Keep(ctx, k.Principal, k.Invocation, f)
	if err != nil {
		return capability.Result{}, err
	}
	out := map[string]any{"artifactRef": ref, "name": f.Name, "size": len(f.Data)}
	if len(f.Data) <= maxShown && utf8.Valid(f.Data) {
		out["text"] = string(f.Data)
	}
	return result(out, "")
}

// NoAttachment returns the error for a message without the attachment.
func NoAttachment(index int) error {
	return capability.Errorf(capability.CodeNotFound, "message", "the message has no attachment %d", index).
		With("no_attachment", "message.read lists the attachments of a message, beginning with 0")
}

// Download returns the content of an address that the service named, at most limit bytes. The
// address is one of the account's own service, or begins with https:// and is of one of the hosts,
// or of a name below one. Only with authorized it gets the token.
func (r *REST) Download(ctx context.Context, address string, hosts []string, authorized bool, limit int) ([]byte, error) {
	u, err := url.Parse(address)
	base, _ := url.Parse(r.Base)
	own := err == nil && base != nil && r.Account.URL != "" && u.Host == base.Host && u.Scheme == base.Scheme
	if err != nil || !own && (u.Scheme != "https" || !slices.ContainsFunc(hosts, func(h string) bool {
		return u.Host == h || strings.HasSuffix(u.Host, "."+h)
	})) {
		return nil, capability.Errorf(capability.CodeFailed, r.Account.Kind, "%s named an address of a file that is not its own", r.Service)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, u.String(), nil)
	if err != nil {
		return nil, capability.Errorf(capability.CodeFailed, r.Account.Kind, "the address of the file cannot be used")
	}
	if authorized {
		if req.Header, err = r.Header(); err != nil {
			return nil, capability.Wrap(capability.CodeUnauthenticated, r.Account.Kind, "the token of "+r.Account.String()+" is not stored", err)
		}
	}
	return r.File(req, r.Service, limit)
}

// File returns the answer to a request for a file, at most limit bytes. service is its name, for errors.
func (c *Client) File(req *http.Request, service string, limit int) ([]byte, error) {
	res, err := c.http.Do(req)
	if err != nil {
		return nil, capability.Errorf(capability.CodeUnavailable, "message", "the file cannot be downloaded from %s", service)
	}
	defer res.Body.Close()
	data, err := io.ReadAll(io.LimitReader(res.Body, int64(limit)+1))
	switch {
	case res.StatusCode != http.StatusOK:
		return nil, capability.Errorf(capability.CodeFailed, "message", "%s answered %s for the file", service, res.Status)
	case err != nil:
		return nil, capability.Errorf(capability.CodeUnavailable, "message", "the download from %s was interrupted", service)
	case len(data) > limit:
		return nil, capability.Errorf(capability.CodeTooLarge, "message", "the attachment has more than %d MiB", limit>>20).
			With("attachment_too_large", "")
	}
	return data, nil
}
