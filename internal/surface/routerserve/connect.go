package routerserve

import (
	"context"
	"encoding/json"
	"net/http"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/jsonx"
	"github.com/junctor-run/junctor/internal/surface/door"
	"github.com/junctor-run/junctor/secret"
)

// Registry is the connected endpoints. Its answers are values that marshal to
// the wire form of router spec section 10.
type Registry interface {
	Connect(ctx context.Context, who capability.Principal, req ConnectRequest) (status, synced any, err error)
	Disconnect(ctx context.Context, who capability.Principal, id string) error
	List() any
	Show(id string) (any, error)
	// Down lists the endpoints that cannot be called now.
	Down() []EndpointError
	// Sync with id "" asks all endpoints in parallel.
	Sync(ctx context.Context, who capability.Principal, id string) (any, error)
}

// ConnectRequest is POST /api/capability-router/connect for an endpoint.
type ConnectRequest struct {
	ID, BaseURL, Provider string
	Token                 secret.Value
	AllowedModules        []string // nil: all
	Timeout               time.Duration
	Persist               bool
}

func (s *Surface) connectRoutes(mux *http.ServeMux) {
	guard := func(h door.Handler) http.Handler {
		return s.Door.Guard(h, capability.RoleAdmin, capability.RoleOperator)
	}
	const base = "/api/capability-router/"
	mux.Handle("POST "+base+"connect", guard(s.connect))
	mux.Handle("GET "+base+"endpoints", guard(s.list))
	mux.Handle("GET "+base+"endpoints/{id}", guard(s.show))
	mux.Handle("DELETE "+base+"endpoints/{id}", guard(s.disconnect))
	mux.Handle("POST "+base+"sync", guard(s.sync))
	mux.Handle("POST "+base+"endpoints/{id}/sync", guard(s.sync))
}

// connectBody is the body of router spec section 10. Unknown fields are ignored
// on this wire, as decision R6 says, and named in "warnings".
type connectBody struct {
	Endpoint *struct {
		ID      string  `json:"id"`
		BaseURL string  `json:"baseUrl"`
		Token   *string `json:"token"`
	} `json:"endpoint"`
	Cloud            jsonx.Raw `json:"cloud"`
	Provider         *string   `json:"provider"`
	Persist          *bool     `json:"persist"`
	UnloadMissing    *bool     `json:"unloadMissing"`
	RequestTimeoutMS *int64    `json:"requestTimeoutMs"`
	AllowedModuleIDs *[]string `json:"allowedModuleIds"`
	TrustPolicy      jsonx.Raw `json:"trustPolicy"`
}

func (s *Surface) connect(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	const op = "endpoints.connect"
	body, err := door.ReadBody(w, r, door.BodyLimit)
	if err != nil {
		return err
	}
	var in connectBody
	if err := jsonx.Unmarshal(body, &in); err != nil {
		return door.BadJSON(err)
	}
	switch {
	case len(in.Cloud) > 0:
		return capability.Errorf(capability.CodeInvalidInput, op, "cloud endpoints are not supported yet; connect the endpoint by its URL")
	case len(in.TrustPolicy) > 0:
		// Refused, not ignored: a policy that is dropped silently would let in what
		// it was to keep out.
		return capability.Errorf(capability.CodeInvalidInput, op, "trust policies are not supported yet; use allowedModuleIds")
	case in.Endpoint == nil:
		return capability.Errorf(capability.CodeInvalidInput, op, "the body needs an endpoint with its baseUrl")
	}
	req := ConnectRequest{ID: in.Endpoint.ID, BaseURL: in.Endpoint.BaseURL, Persist: in.Persist == nil || *in.Persist}
	if in.Endpoint.Token != nil {
		req.Token = secret.New(*in.Endpoint.Token)
	}
	if in.Provider != nil {
		req.Provider = *in.Provider
	}
	if in.AllowedModuleIDs != nil {
		req.AllowedModules = append([]string{}, *in.AllowedModuleIDs...)
	}
	if in.RequestTimeoutMS != nil {
		if *in.RequestTimeoutMS <= 0 || *in.RequestTimeoutMS > int64(time.Hour/time.Millisecond) {
			return capability.Errorf(capability.CodeInvalidInput, op, "requestTimeoutMs must be from 1 to 3600000")
		}
		req.Timeout = time.Duration(*in.RequestTimeoutMS) * time.Millisecond
	}
	status, synced, err := s.Registry.Connect(r.Context(), who, req)
	if err != nil {
		return err
	}
	mode := req.Provider
	if mode == "" || mode == "direct" {
		mode = "endpoint"
	}
	out := map[string]any{"success": true, "mode": mode, "endpoint": status, "persisted": req.Persist, "sync": synced}
	if mode != "endpoint" {
		out["provider"] = mode
	}
	if unknown := unknownFields(body); len(unknown) > 0 {
		out["warnings"] = unknown
	}
	door.WriteJSON(w, http.StatusOK, out)
	return nil
}

func unknownFields(body []byte) []string {
	var strict connectBody
	if err := jsonx.UnmarshalStrict(body, &strict); err != nil {
		return []string{"ignored: " + err.Error()}
	}
	return nil
}

func (s *Surface) list(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	door.WriteJSON(w, http.StatusOK, map[string]any{"endpoints": s.Registry.List()})
	return nil
}

func (s *Surface) show(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	status, err := s.Registry.Show(r.PathValue("id"))
	if err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusOK, status)
	return nil
}

func (s *Surface) disconnect(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	if err := s.Registry.Disconnect(r.Context(), who, r.PathValue("id")); err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusOK, map[string]any{"success": true})
	return nil
}

func (s *Surface) sync(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	reports, err := s.Registry.Sync(r.Context(), who, r.PathValue("id"))
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"endpoints": reports})
	if err != nil {
		return err
	}
	door.WriteJSON(w, http.StatusOK, jsonx.Raw(data))
	return nil
}
