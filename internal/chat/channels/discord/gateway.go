package discord

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/url"
	"time"

	"github.com/coder/websocket"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
)

// intents are the events that are requested: messages in guilds, messages to the bot alone, and
// the content of messages.
const intents = 1<<9 | 1<<12 | 1<<15

// The opcodes of the gateway.
const (
	opDispatch       = 0
	opHeartbeat      = 1
	opIdentify       = 2
	opResume         = 6
	opReconnect      = 7
	opInvalidSession = 9
	opHello          = 10
	opHeartbeatACK   = 11
)

// position is how far the account has received events; it is stored as the cursor. A session that
// the service still has is resumed. Otherwise the messages after those that were seen last are
// requested.
type position struct {
	Session string `json:"session,omitempty"`
	URL     string `json:"url,omitempty"` // to resume the session
	Seq     int64  `json:"seq,omitempty"`
	Seen    []seen `json:"seen,omitempty"` // the conversation of the newest message at the end
}

// seen is the last message of a conversation. The API does not repeat to which guild it belongs.
type seen struct {
	Conversation, Message string
	Group                 bool `json:",omitempty"`
}

func (p *position) saw(u *channels.Update) {
	if u.Kind != channels.Wrote {
		return
	}
	for i, s := range p.Seen {
		if s.Conversation == u.Conversation {
			p.Seen = append(p.Seen[:i:i], p.Seen[i+1:]...)
			break
		}
	}
	p.Seen = append(p.Seen, seen{u.Conversation, u.Message, u.ConversationKind == "group"})
	p.Seen = p.Seen[max(0, len(p.Seen)-maxSeen):]
}

// frame is one message of the gateway.
type frame struct {
	Op   int             `json:"op"`
	Data json.RawMessage `json:"d,omitempty"`
	Seq  *int64          `json:"s,omitempty"`
	Type string          `json:"t,omitempty"`
}

// gateway is one connection.
type gateway struct {
	*channel
	socket   *channels.Socket
	me       user
	position position
	interval time.Duration
	acked    bool // the last heartbeat was answered
	receive  channels.Receive
}

// Run implements [channels.Channel].
func (c *channel) Run(ctx context.Context, cursor string, connected func(string), receive channels.Receive) error {
	g := &gateway{channel: c, receive: receive, acked: true}
	_ = json.Unmarshal([]byte(cursor), &g.position) // an unreadable one is a new start
	asked, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	if err := c.Call(asked, http.MethodGet, "/users/@me", nil, nil, &g.me); err != nil {
		return c.Reading(err)
	}
	at := g.position.URL
	if g.position.Session == "" || at == "" {
		var found struct {
			URL string `json:"url"`
		}
		if err := c.Call(asked, http.MethodGet, "/gateway/bot", nil, nil, &found); err != nil {
			return c.Reading(err)
		}
		at = found.URL
	}
	var err error
	if g.socket, err = c.Dial(ctx, at, url.Values{"v": {"10"}, "encoding": {"json"}}); err != nil {
		g.position.URL = "" // another one at the next attempt
		return errors.Join(err, g.store(ctx, nil))
	}
	defer g.socket.Close()
	return g.serve(ctx, connected)
}

// serve handles frames until ctx ends or the connection does.
func (g *gateway) serve(ctx context.Context, connected func(string)) error {
	beat := time.NewTimer(startTimeout) // until the first frame, which has the interval
	defer beat.Stop()
	for {
		select {
		case data := <-g.socket.Frames:
			var f frame
			if json.Unmarshal(data, &f) != nil {
				return capability.Errorf(capability.CodeUnavailable, "discord", "a frame of Discord cannot be read")
			}
			first := g.interval == 0
			if err := g.handle(ctx, f, connected); err != nil {
				return err
			}
			if first && g.interval != 0 {
				beat.Reset(g.interval / 2) // the first one is early, so that not all come at once
			}
		case <-beat.C:
			if g.interval == 0 || !g.acked {
				return capability.Errorf(capability.CodeUnavailable, "discord", "Discord does not answer")
			}
			if err := g.heartbeat(ctx); err != nil {
				return err
			}
			beat.Reset(g.interval)
		case err := <-g.socket.Failed:
			return g.closed(ctx, err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

func (g *gateway) write(ctx context.Context, op int, data any) error {
	if g.socket.Write(ctx, map[string]any{"op": op, "d": data}) != nil {
		return capability.Errorf(capability.CodeUnavailable, "discord", "the connection to Discord was lost")
	}
	return nil
}

func (g *gateway) heartbeat(ctx context.Context) error {
	g.acked = false
	if g.position.Seq == 0 {
		return g.write(ctx, opHeartbeat, nil)
	}
	return g.write(ctx, opHeartbeat, g.position.Seq)
}

// handle handles one frame.
func (g *gateway) handle(ctx context.Context, f frame, connected func(string)) error {
	switch f.Op {
	case opHello:
		var hello struct {
			Millis int64 `json:"heartbeat_interval"`
		}
		if err := json.Unmarshal(f.Data, &hello); err != nil {
			return capability.Errorf(capability.CodeUnavailable, "discord", "Discord's greeting cannot be read")
		}
		g.interval = min(max(time.Duration(hello.Millis)*time.Millisecond, minInterval), maxInterval)
		return g.login(ctx)
	case opHeartbeat:
		return g.heartbeat(ctx)
	case opHeartbeatACK:
		g.acked = true
	case opReconnect:
		return capability.Errorf(capability.CodeUnavailable, "discord", "Discord requested a new connection")
	case opInvalidSession:
		if string(f.Data) != "true" {
			g.position.Session, g.position.Seq = "", 0
		}
		return errors.Join(capability.Errorf(capability.CodeUnavailable, "discord", "Discord ended the session"), g.store(ctx, nil))
	case opDispatch:
		if f.Seq != nil {
			g.position.Seq = *f.Seq
		}
		return g.dispatch(ctx, f, connected)
	}
	return nil
}

// login resumes the session or begins a new one.
func (g *gateway) login(ctx context.Context) error {
	token, err := g.settings.Secret()
	if err != nil {
		return capability.Wrap(capability.CodeUnauthenticated, "discord", "the token of "+g.Account.String()+" is not stored", err)
	}
	if g.position.Session != "" {
		return g.write(ctx, opResume, map[string]any{"token": token.Reveal(), "session_id": g.position.Session, "seq": g.position.Seq})
	}
	return g.write(ctx, opIdentify, map[string]any{
		"token": token.Reveal(), "intents": intents, "properties": map[string]string{"os": "linux", "browser": "junctor", "device": "junctor"},
	})
}

// dispatch handles one event. One that cannot be read is left out.
func (g *gateway) dispatch(ctx context.Context, f frame, connected func(string)) error {
	var u channels.Update
	var ok bool
	switch f.Type {
	case "READY":
		var ready struct {
			Session string `json:"session_id"`
			URL     string `json:"resume_gateway_url"`
		}
		if json.Unmarshal(f.Data, &ready) != nil {
			return nil
		}
		g.position.Session, g.position.URL = ready.Session, ready.URL
		connected("@" + g.me.Name)
		return g.missed(ctx)
	case "RESUMED":
		connected("@" + g.me.Name)
		return nil
	case "MESSAGE_CREATE":
		var m message
		if json.Unmarshal(f.Data, &m) == nil {
			u, ok = m.convert(g.me)
		}
	case "INTERACTION_CREATE":
		var p press
		if json.Unmarshal(f.Data, &p) == nil {
			u, ok = p.convert()
		}
	}
	if !ok {
		return nil
	}
	g.position.saw(&u)
	return g.store(ctx, []channels.Update{u})
}

// store stores updates and the position behind them.
func (g *gateway) store(ctx context.Context, list []channels.Update) error {
	cursor, err := json.Marshal(g.position)
	if err == nil {
		err = g.receive(ctx, string(cursor), list)
	}
	return err
}

// missed requests the messages of known conversations that came while no session was open, at most
// a hundred of each.
func (g *gateway) missed(ctx context.Context) error {
	var list []channels.Update
	for _, s := range g.position.Seen {
		var page []message // the newest first
		err := g.Call(ctx, http.MethodGet, "/channels/"+url.PathEscape(s.Conversation)+"/messages?limit=100&after="+url.QueryEscape(s.Message),
			nil, nil, &page)
		switch e := capability.AsError(err); {
		case e == nil:
		case e.Code == capability.CodeFailed && e.Reason != channels.ReasonDeliveryUnknown:
			continue // the bot was removed from the conversation
		default:
			return g.Reading(err)
		}
		for i := len(page) - 1; i >= 0; i-- {
			if s.Group {
				page[i].Guild = "known"
			}
			if u, ok := page[i].convert(g.me); ok {
				list = append(list, u)
			}
		}
	}
	for i := range list {
		g.position.saw(&list[i])
	}
	return g.store(ctx, list)
}

// closed returns why the service ended the connection.
func (g *gateway) closed(ctx context.Context, err error) error {
	const portal = "in Discord's developer portal, on the page of the bot"
	switch websocket.CloseStatus(err) {
	case 4004:
		return g.Unauthorized()
	case 4013, 4014:
		return capability.Errorf(capability.CodeUnauthenticated, "discord", "Discord refuses the message content intent to %s", g.Account.Ref).
			With("intent_refused", "switch it on "+portal)
	case 4007, 4009:
		g.position.Session, g.position.Seq = "", 0
		err = g.store(ctx, nil)
	default:
		err = nil
	}
	return errors.Join(capability.Errorf(capability.CodeUnavailable, "discord", "the connection to Discord was lost"), err)
}
