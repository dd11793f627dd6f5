package routerserve

import (
	"context"
	"encoding/json"
	"net/http"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/secret"
)

// Registry manages the connected endpoints. Its values marshal to the JSON of the API.
type Registry interface {
	Connect(ctx context.Context, who capability.Principal, req ConnectRequest) (Connected, error)
	Disconnect(ctx context.Context, who capability.Principal, id string) error
	List() []endpoint.Status
	Show(id string) (endpoint.Status, error)
	// Down lists the endpoints that cannot be called now.
	Down() []EndpointError
	// Sync with id "" asks all endpoints in parallel.
	Sync(ctx context.Context, who capability.Principal, id string) ([]endpoint.SyncReport, error)
}

// ConnectRequest is the request of POST /api/capability-router/connect. AllowedModuleIDs and
// TrustPolicy are unparsed JSON; nil is absent.
type ConnectRequest struct {
	ID, BaseURL, Provider         string
	Token                         secret.Value
	AllowedModuleIDs, TrustPolicy []byte
	Timeout                       time.Duration
	Persist                       bool
	KeepMissing                   bool          // unloadMissing is false
	Cloud                         *CloudRequest // then BaseURL and Token come from there
}

// CloudRequest is a request to let a cloud create the endpoint.
type CloudRequest struct {
	APIBase, Name         string
	AuthToken             secret.Value
	Bio                   []string
	Timeout, PollInterval time.Duration
}

// Connected is the result of a connect.
type Connected struct {
	ID, BaseURL    string
	HasToken       bool
	AgentID, JobID string // of a cloud's agent
	Sync           endpoint.Synced
	Warnings       []string
}

func (s *Surface) connectRoutes(mux *http.ServeMux) {
	const base = "/api/capability-router/"
	mux.Handle("POST "+base+"connect", s.guard(s.connect))
	mux.Handle("GET "+base+"endpoints", s.guard(s.list))
	mux.Handle("GET "+base+"endpoints/{id}", s.guard(s.show))
	mux.Handle("DELETE "+base+"endpoints/{id}", s.guard(s.disconnect))
	mux.Handle("POST "+base+"sync", s.guard(s.sync))
	mux.Handle("POST "+base+"endpoints/{id}/sync", s.guard(s.sync))
	mux.Handle("GET "+base+"saved", s.guard(s.saved))
	mux.Handle("GET "+base+"decisions", s.guard(s.decisions))
}

const opConnect = "endpoints.connect"

// connectBody is the body of POST /api/capability-router/connect. Unknown fields are
// ignored, for compatibility with other routers, and named in "warnings".
type connectBody struct {
	Endpoint         *endpointBody `json:"endpoint"`
	Cloud            *cloudBody    `json:"cloud"`
	Provider         *string       `json:"provider"`
	Persist          jsonx.Raw     `json:"persist"`
	UnloadMissing    jsonx.Raw     `json:"unloadMissing"`
	RequestTimeoutMS *int64        `json:"requestTimeoutMs"`
	AllowedModuleIDs jsonx.Raw     `json:"allowedModuleIds"`
	TrustPolicy      jsonx.Raw     `json:"trustPolicy"`
}

type endpointBody struct {
	ID      *string `json:"id"`
	BaseURL string  `json:"baseUrl"`
	Token   *string `json:"token"`
}

type cloudBody struct {
	CloudAPIBase     string    `json:"cloudApiBase"`
	AuthToken        string    `json:"authToken"`
	Name             string    `json:"name"`
	Bio              []string  `json:"bio"`
	EndpointID       *string   `json:"endpointId"`
	Token            *string   `json:"token"`
	TimeoutMS        *int64    `json:"timeoutMs"`
	PollIntervalMS   *int64    `json:"pollIntervalMs"`
	AllowedModuleIDs jsonx.Raw `json:"allowedModuleIds"`
	TrustPolicy      jsonx.Raw `json:"trustPolicy"`
}

func (s *Surface) connect(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
	if err != nil {
		return err
	}
	req, warnings, err := readConnect(body)
	if err != nil {
		return badConnect(err)
	}
	done, err := s.Registry.Connect(r.Context(), who, req)
	if err != nil {
		return badConnect(err)
	}
	out := map[string]any{
		"success": true, "mode": "endpoint", "persisted": req.Persist, "sync": done.Sync,
		"endpoint": map[string]any{"id": done.ID, "baseUrl": done.BaseURL, "hasToken": done.HasToken},
	}
	switch {
	case req.Cloud != nil:
		out["mode"], out["agentId"] = "cloud", done.AgentID
		if done.JobID != "" {
			out["jobId"] = done.JobID
		}
	case req.Provider != "" && req.Provider != "direct":
		out["mode"], out["provider"] = req.Provider, req.Provider
	}
	if warnings = append(warnings, done.Warnings...); len(warnings) > 0 {
		out["warnings"] = warnings
	}
	return httpapi.Answer(w, out, nil)
}

func refuse(format string, args ...any) error {
	return capability.Errorf(capability.CodeInvalidInput, opConnect, format, args...)
}

// readConnect reads the body. Presence is that the key is there, so a null
// endpoint is one that is not an object.
func readConnect(body []byte) (req ConnectRequest, warnings []string, err error) {
	var in connectBody
	if err := jsonx.Unmarshal(body, &in); err != nil {
		return req, nil, httpapi.BadJSON(err)
	}
	var has map[string]jsonx.Raw
	if err := jsonx.Unmarshal(body, &has); err != nil || has == nil {
		return req, nil, refuse("the body must be a JSON object")
	}
	_, endpoint := has["endpoint"]
	_, cloud := has["cloud"]
	switch {
	case endpoint && cloud:
		return req, nil, refuse("give endpoint or cloud, not both")
	case !endpoint && !cloud:
		return req, nil, refuse("the body needs an endpoint with its baseUrl, or cloud")
	case endpoint && in.Endpoint == nil, cloud && in.Cloud == nil:
		return req, nil, refuse("endpoint and cloud must be objects")
	}
	req.Persist = string(in.Persist) != "false"
	req.AllowedModuleIDs, req.TrustPolicy = in.AllowedModuleIDs, in.TrustPolicy
	if in.RequestTimeoutMS != nil || string(has["requestTimeoutMs"]) == "null" {
		if req.Timeout, err = milliseconds("requestTimeoutMs", in.RequestTimeoutMS); err != nil {
			return req, nil, err
		}
	}
	req.KeepMissing = string(in.UnloadMissing) == "false"
	if unknown := unknownFields(body); unknown != "" {
		warnings = append(warnings, unknown)
	}
	if cloud {
		return req, warnings, in.Cloud.read(&req)
	}
	if in.Provider != nil {
		req.Provider = strings.TrimSpace(*in.Provider)
	}
	if req.BaseURL = strings.TrimSpace(in.Endpoint.BaseURL); req.BaseURL == "" {
		return req, nil, refuse("endpoint.baseUrl must be the http or https URL of the endpoint")
	}
	if req.ID, err = notBlank("endpoint.id", in.Endpoint.ID); err != nil {
		return req, nil, err
	}
	token, err := notBlank("endpoint.token", in.Endpoint.Token)
	req.Token = secret.New(token)
	return req, warnings, err
}

func (c *cloudBody) read(req *ConnectRequest) (err error) {
	switch {
	case c.AllowedModuleIDs != nil && req.AllowedModuleIDs != nil:
		return refuse("allowedModuleIds is given twice: at the top and inside cloud")
	case c.TrustPolicy != nil && req.TrustPolicy != nil:
		return refuse("trustPolicy is given twice: at the top and inside cloud")
	case c.AllowedModuleIDs != nil:
		req.AllowedModuleIDs = c.AllowedModuleIDs
	}
	if c.TrustPolicy != nil {
		req.TrustPolicy = c.TrustPolicy
	}
	out := CloudRequest{Bio: c.Bio}
	for _, f := range []struct{ name, value string }{{"cloudApiBase", c.CloudAPIBase}, {"authToken", c.AuthToken}, {"name", c.Name}} {
		if strings.TrimSpace(f.value) == "" {
			return refuse("cloud.%s is needed and must not be blank", f.name)
		}
	}
	out.APIBase, out.AuthToken, out.Name = strings.TrimSpace(c.CloudAPIBase), secret.New(strings.TrimSpace(c.AuthToken)),
		strings.TrimSpace(c.Name)
	if req.ID, err = notBlank("cloud.endpointId", c.EndpointID); err != nil {
		return err
	}
	token, err := notBlank("cloud.token", c.Token)
	if err != nil {
		return err
	}
	req.Token = secret.New(token)
	if c.TimeoutMS != nil {
		if out.Timeout, err = milliseconds("cloud.timeoutMs", c.TimeoutMS); err != nil {
			return err
		}
	}
	if c.PollIntervalMS != nil {
		if out.PollInterval, err = milliseconds("cloud.pollIntervalMs", c.PollIntervalMS); err != nil {
			return err
		}
	}
	req.Cloud = &out
	return nil
}

func milliseconds(name string, n *int64) (time.Duration, error) {
	if n == nil || *n <= 0 || *n > int64(time.Hour/time.Millisecond) {
		return 0, refuse("%s must be from 1 to 3600000", name)
	}
	return time.Duration(*n) * time.Millisecond, nil
}

// notBlank is an optional text that says something when it is there.
func notBlank(name string, s *string) (string, error) {
	if s == nil {
		return "", nil
	}
	if out := strings.TrimSpace(*s); out != "" {
		return out, nil
	}
	return "", refuse("%s must not be blank; leave it out instead", name)
}

func unknownFields(body []byte) string {
	var strict connectBody
	if err := jsonx.UnmarshalStrict(body, &strict); err != nil {
		return "ignored: " + err.Error()
	}
	return ""
}

func (s *Surface) list(w http.ResponseWriter, _ *http.Request, _ capability.Principal) error {
	return httpapi.Answer(w, map[string]any{"endpoints": s.Registry.List()}, nil)
}

func (s *Surface) show(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	status, err := s.Registry.Show(r.PathValue("id"))
	return httpapi.Answer(w, status, err)
}

func (s *Surface) disconnect(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	if err := s.Registry.Disconnect(r.Context(), who, r.PathValue("id")); err != nil {
		return err
	}
	return httpapi.Answer(w, map[string]any{"success": true}, nil)
}

func (s *Surface) sync(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	reports, err := s.Registry.Sync(r.Context(), who, r.PathValue("id"))
	if err != nil {
		return err
	}
	data, err := json.Marshal(map[string]any{"endpoints": reports})
	return httpapi.Answer(w, jsonx.Raw(data), err)
}
