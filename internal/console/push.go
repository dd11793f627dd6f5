package console

import (
	"net/http"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/console/webpush"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// projectURL is the contact for push services. It is not the public URL of the server, because
// Apple's service refuses contacts that it cannot resolve, such as names of private networks.
const projectURL = "https://github.com/junctor-run/junctor"

// shownPush is a subscription in the API. Its endpoint is a credential and is not shown.
type shownPush struct {
	ID      string    `json:"id"`
	Name    string    `json:"name"`
	Created time.Time `json:"created"`
}

func (s *Service) listPush(w http.ResponseWriter, _ *http.Request, who capability.Principal) error {
	key, err := s.push.PublicKey()
	list := []shownPush{}
	for _, one := range s.push.List(who.ID) {
		list = append(list, shownPush{one.ID, one.Name, one.Created})
	}
	return httpapi.Answer(w, map[string]any{"public_key": key, "subscriptions": list}, err)
}

// addPush subscribes a browser, or renews its subscription in a later session.
func (s *Service) addPush(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		Name     string `json:"name"`
		Endpoint string `json:"endpoint"`
		Keys     struct {
			P256dh string `json:"p256dh"`
			Auth   string `json:"auth"`
		} `json:"keys"`
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	var one session
	t, err := s.bearerToken(r)
	if r.Header.Get("Authorization") == "" {
		one, t, err = s.session(r)
	}
	if err != nil {
		return err
	}
	made, err := s.push.Add(r.Context(), webpush.Subscription{
		Principal: who.ID, Token: t.ID, Session: one.ID, Name: req.Name, Endpoint: req.Endpoint, P256dh: req.Keys.P256dh, Auth: req.Keys.Auth,
	})
	if err != nil {
		return err
	}
	httpapi.WriteJSON(w, http.StatusCreated, shownPush{made.ID, made.Name, made.Created})
	return nil
}

func (s *Service) removePush(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	if err := s.push.Remove(r.Context(), who.ID, r.PathValue("id")); err != nil {
		return err
	}
	w.WriteHeader(http.StatusNoContent)
	return nil
}
