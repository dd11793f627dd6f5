package chatserve

import (
	"context"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/chat/channels"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// Channels manages the accounts of chat services; [channels.Hub] implements it.
type Channels interface {
	Kinds() []channels.Kind
	List(ctx context.Context) ([]channels.Status, error)
	Get(ctx context.Context, r channels.Ref) (channels.Status, error)
	Add(ctx context.Context, by capability.Principal, a channels.Account) (channels.Status, error)
	Remove(ctx context.Context, by capability.Principal, r channels.Ref) error
	Pair(ctx context.Context, by capability.Principal, r channels.Ref, role capability.Role, name, user string) (channels.Pairing, error)
	Unpair(ctx context.Context, by capability.Principal, r channels.Ref, user string) error
	Hook(ctx context.Context, r channels.Ref, header http.Header, body []byte) error
}

func (s *Surface) channelRoutes(mux *http.ServeMux) {
	const base = "/api/v1/channels"
	operator := func(h httpapi.Handler) http.Handler {
		return s.Door.Guard(h, capability.RoleAdmin, capability.RoleOperator)
	}
	admin := func(h httpapi.Handler) http.Handler { return s.Door.Guard(h, capability.RoleAdmin) }
	mux.Handle("GET "+base, operator(s.listChannels))
	mux.Handle("POST "+base, admin(s.addChannel))
	mux.Handle("GET "+base+"/{kind}/{account}", operator(s.showChannel))
	mux.Handle("DELETE "+base+"/{kind}/{account}", admin(s.removeChannel))
	mux.Handle("POST "+base+"/{kind}/{account}/people", operator(s.pair))
	mux.Handle("DELETE "+base+"/{kind}/{account}/people/{user}", operator(s.unpair))
	// The signature of the request is its credential.
	mux.HandleFunc("POST "+base+"/{kind}/{account}/messages", func(w http.ResponseWriter, r *http.Request) {
		body, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
		if err == nil {
			err = s.Channels.Hook(r.Context(), refOf(r), r.Header, body)
		}
		if err != nil {
			httpapi.WriteError(w, err)
			return
		}
		httpapi.WriteJSON(w, http.StatusOK, map[string]any{"ok": true})
	})
}

func refOf(r *http.Request) channels.Ref {
	return channels.Ref{Kind: r.PathValue("kind"), Account: r.PathValue("account")}
}

func (s *Surface) listChannels(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	list, err := s.Channels.List(r.Context())
	type kind struct {
		Name     string `json:"name"`
		Label    string `json:"label"`
		Blurb    string `json:"blurb"`
		NeedsURL bool   `json:"needs_url,omitempty"`
	}
	kinds := []kind{}
	for _, k := range s.Channels.Kinds() {
		kinds = append(kinds, kind{k.Name, k.Label, k.Blurb, k.NeedsURL})
	}
	return answer(w, map[string]any{"channels": orEmpty(list), "kinds": kinds}, err)
}

func (s *Surface) showChannel(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	one, err := s.Channels.Get(r.Context(), refOf(r))
	return answer(w, one, err)
}

func (s *Surface) addChannel(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var in channels.Account
	if err := httpapi.Decode(w, r, &in); err != nil {
		return err
	}
	added, err := s.Channels.Add(r.Context(), who, in)
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusCreated, added)
	return nil
}

func (s *Surface) removeChannel(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	err := s.Channels.Remove(r.Context(), who, refOf(r))
	return answer(w, map[string]any{"removed": refOf(r).String()}, err)
}

// pair makes a code, or pairs a user at once.
func (s *Surface) pair(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var in struct {
		Role capability.Role `json:"role"`
		Name string          `json:"name"`
		User string          `json:"user"`
	}
	if err := httpapi.Decode(w, r, &in); err != nil {
		return err
	}
	p, err := s.Channels.Pair(r.Context(), who, refOf(r), in.Role, in.Name, in.User)
	if err != nil {
		return err
	}
	w.Header().Set("Cache-Control", "no-store")
	httpapi.WriteJSON(w, http.StatusCreated, p)
	return nil
}

func (s *Surface) unpair(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	err := s.Channels.Unpair(r.Context(), who, refOf(r), r.PathValue("user"))
	return answer(w, map[string]any{"removed": r.PathValue("user")}, err)
}
