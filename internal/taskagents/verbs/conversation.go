package verbs

import (
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/base/text"
)

// Told returns the conversation that a call of the catalog names. The call's context holds the
// channel; the agent passes the rest in the call's metadata (the `_meta` of MCP), in snake or
// camel case: user_role, connector, room_id, world_id, user_id, time_zone, message, and
// messages for the earlier ones. None of it grants a right. Malformed values are ignored,
// except an unknown role, which permits nothing.
func Told(c capability.Call) Call {
	out := Call{By: c.Principal, Session: c.Session}
	if in := c.Context; in != nil {
		switch {
		case in.Route != nil:
			out.Connector, out.RoomID = in.Route.Kind, in.Route.Conversation
		case in.Adapter != nil:
			out.Connector = in.Adapter.Kind
		}
	}
	if len(c.Meta) == 0 {
		return out
	}
	_ = jsonx.Members(c.Meta, func(name string, value []byte) {
		name = strings.ToLower(strings.ReplaceAll(name, "_", ""))
		s, _ := jsonx.Text(value)
		id := text.Line(s, 128)
		switch name {
		case "userrole":
			if out.UserRole = id; id == "" {
				out.UserRole = "unknown" // a malformed role permits nothing
			}
		case "connector":
			if out.Connector == "" { // the channel of the context wins
				out.Connector = id
			}
		case "roomid":
			out.RoomID = First(id, out.RoomID)
		case "worldid":
			out.WorldID = id
		case "userid":
			out.UserID = id
		case "timezone":
			// A name and never a path: LoadLocation refuses those that lead anywhere else.
			if zone, err := time.LoadLocation(id); id != "" && err == nil {
				out.Zone = zone
			}
		case "message":
			if len(s) <= MaxMessage {
				out.Message = s
			}
		case "messages":
			_ = jsonx.Elements(value, func(one []byte) error {
				if s, ok := jsonx.Text(one); ok {
					if out.Recent = append(out.Recent, text.Line(s, MaxRecentText)); len(out.Recent) > MaxRecent {
						out.Recent = out.Recent[1:]
					}
				}
				return nil
			})
		}
	})
	return out
}
