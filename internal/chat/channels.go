package chat

import (
	"bytes"
	"cmp"
	"context"
	"io"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/chat/agent"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/chat/channels/channelsql"
	"github.com/junctor-run/junctor/internal/chat/channels/discord"
	"github.com/junctor-run/junctor/internal/chat/channels/email"
	"github.com/junctor-run/junctor/internal/chat/channels/matrix"
	"github.com/junctor-run/junctor/internal/chat/channels/slack"
	"github.com/junctor-run/junctor/internal/chat/channels/telegram"
	"github.com/junctor-run/junctor/internal/chat/channels/webhook"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/store/blob"
)

// ChannelKinds returns the chat services that accounts can be added of. A new one is one line here.
func ChannelKinds() []channels.Kind {
	return []channels.Kind{discord.Kind(), email.Kind(), matrix.Kind(), slack.Kind(), telegram.Kind(), webhook.Kind()}
}

// openChannels opens the accounts of chat services. They connect with Run.
func (s *Service) openChannels(ctx context.Context) error {
	accounts, err := channelsql.Open(ctx, s.cfg.Store)
	if err != nil {
		return err
	}
	s.channels, err = channels.New(ctx, channels.Config{
		Kinds: ChannelKinds(), Store: accounts, Chat: s.chat, Policy: s.cfg.Channels.Policy, Verify: s.cfg.Channels.Verify,
		Secrets: s.cfg.Channels.Secrets, Tasks: s.cfg.Tasks.List, Artifact: s.artifact, Keep: s.keep, Destructive: s.destructive, Log: s.cfg.Log,
		Bus: s.cfg.Bus, Publish: s.cfg.Publish, Gateway: s.cfg.Gateway, Logger: s.cfg.Logger,
	})
	return err
}

// destructive reports whether a capability declares destructive effects, or does not exist.
func (s *Service) destructive(id capability.ID) bool {
	e, ok := s.cfg.Channels.Catalog.Snapshot().Capability(id)
	return !ok || e.Contribution.Approval
}

// Source returns the source of the accounts of chat services for the catalog.
func (s *Service) Source() capability.Source { return channels.Source{Hub: s.channels} }

// deliver stores the reply of a run and sends it the way that its message came.
func (s *Service) deliver(ctx context.Context, r agent.Run, o agent.Outcome) (int64, error) {
	m, err := s.chat.Deliver(ctx, r, o)
	if err == nil && r.Route != nil && !o.Ignored {
		err = s.channels.Replied(ctx, *r.Route, r.ID, m.Text)
	}
	return m.Seq, err
}

// waits notifies the conversation of a run that waits for approvals.
func (s *Service) waits(r agent.Run) {
	if r.State != agent.Waiting || r.Route == nil {
		return
	}
	if err := s.channels.Waits(context.Background(), *r.Route, r.ID, r.Approvals); err != nil {
		s.cfg.Logger.Warn("a conversation was not told that its run waits", "run", r.ID, "err", err)
	}
}

// artifact reads an artifact that a principal may see, RUN/NAME.
func (s *Service) artifact(ctx context.Context, who capability.Principal, ref string, limit int) (channels.File, error) {
	run, name, _ := strings.Cut(ref, "/")
	list, err := s.cfg.Blobs.List(ctx, run)
	if err != nil {
		return channels.File{}, err
	}
	i := slices.IndexFunc(list, func(b blob.Ref) bool { return b.Name == name && (b.Principal == who.ID || b.Principal == who.Owner()) })
	if i < 0 {
		return channels.File{}, capability.Errorf(capability.CodeNotFound, "message", "no artifact of yours is named %.80q", ref).
			With("no_artifact", "name it RUN/NAME, as junctor runs artifacts lists it")
	}
	if list[i].Size > int64(limit) {
		return channels.File{}, capability.Errorf(capability.CodeTooLarge, "message",
			"the artifact %.80q has %d bytes; this service takes %d", ref, list[i].Size, limit)
	}
	f, err := s.cfg.Blobs.Read(list[i])
	if err != nil {
		return channels.File{}, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, int64(limit)))
	return channels.File{Name: name[strings.LastIndexByte(name, '/')+1:], Size: int64(len(data)), Data: data}, err
}

// keep stores an attachment as an artifact, and returns RUN/NAME.
func (s *Service) keep(ctx context.Context, who capability.Principal, run string, f channels.File) (string, error) {
	name := strings.Map(func(r rune) rune {
		if unicode.IsLetter(r) || unicode.IsDigit(r) || strings.ContainsRune("._- ", r) {
			return r
		}
		return '_'
	}, text.CutBytes(text.Visible(f.Name), 100))
	if name = strings.TrimLeft(name, "."); name == "" {
		name = "attachment"
	}
	ref := blob.Ref{
		Principal: cmp.Or(who.Owner(), who.ID), Run: run, Name: name, MIME: "application/octet-stream", Expires: time.Now().Add(artifactTTL),
	}
	_, err := s.cfg.Blobs.Put(ctx, ref, bytes.NewReader(f.Data), channels.MaxFile)
	return run + "/" + name, err
}

// checkChannels returns a finding for each account that does not work.
func (s *Service) checkChannels(ctx context.Context) (checks []httpapi.Check) {
	list, err := s.channels.List(ctx)
	if err != nil {
		return []httpapi.Check{{Name: "channels", Detail: capability.AsError(err).Message, Remedy: "see that the store can be reached"}}
	}
	for _, a := range list {
		if a.State.State == "" || a.State.State == capability.StateReady || time.Since(a.State.Since) < downGrace {
			continue
		}
		c := httpapi.Check{Name: "channel " + a.String(), Detail: a.State.Reason}
		c.Remedy = "it is tried again by itself; see junctor channels show " + a.String()
		if a.State.State == capability.StateUnauthorized {
			c.Remedy = "store the new token with: junctor secrets set " + a.Secret
		}
		checks = append(checks, c)
	}
	return checks
}
