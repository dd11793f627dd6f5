// Package extensionserve is the part of /api/v1 that installs and lists extensions and serves the operator
// and static catalogs. It decodes requests and encodes answers; Extensions and the engine decide.
package extensionserve

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime"
	"mime/multipart"
	"net/http"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/operator"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// consented is the body with which a user consents to the screen of that tree hash.
type consented struct {
	TreeHash string `json:"tree_hash,omitempty"`
	// AgentVisible are the actions to show to agents; nil keeps the earlier choice.
	AgentVisible []string `json:"agent_visible,omitempty"`
}

// Extensions manages the installed extensions. Its values marshal to the JSON of the API.
type Extensions interface {
	List(ctx context.Context, f lifecycle.Filter) ([]lifecycle.Extension, error)
	Show(ctx context.Context, id string) (lifecycle.Detail, error)
	Screen(ctx context.Context, id string, agentVisible []string) (extension.Screen, error)
	Install(ctx context.Context, by capability.Principal, src lifecycle.Source, opts lifecycle.Options) (lifecycle.Record, error)
	Record(ctx context.Context, id string) (lifecycle.Record, error)
	Enable(ctx context.Context, by capability.Principal, id string, a lifecycle.Answer) (lifecycle.Extension, error)
	Disable(ctx context.Context, by capability.Principal, id string, kill bool) (lifecycle.Extension, error)
	Uninstall(ctx context.Context, by capability.Principal, id string, how lifecycle.Removal) (lifecycle.Record, error)
	Config(ctx context.Context, id string) (json.RawMessage, error)
	SetConfig(ctx context.Context, by capability.Principal, id string, doc json.RawMessage) (json.RawMessage, error)
	Icon(id string) (data []byte, name string, err error)
	Findings(ctx context.Context) ([]lifecycle.Finding, error)
	// Sandbox returns the sandbox's last report; if fresh, it runs the self-test first.
	Sandbox(ctx context.Context, fresh bool) (sandbox.Report, error)
	// Logs returns at most limit records of an extension, newest first, after offset.
	Logs(ctx context.Context, id string, limit, offset int) ([]json.RawMessage, error)
}

// Config holds the dependencies of a Surface. All are required.
type Config struct {
	Door       *httpapi.Door
	Extensions Extensions
	Static     *operator.StaticBuilder // of the packages in the home
	Catalog    *catalog.Catalog
	MaxPackage int64 // bytes of an upload
}

// Surface serves the HTTP routes.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

// Routes adds every path to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	const base = "/api/v1/extensions"
	mux.Handle("GET "+base, s.Door.Guard(s.list))
	mux.Handle("GET "+base+"/doctor", s.Door.Guard(s.doctor, capability.RoleAdmin, capability.RoleOperator))
	mux.Handle("POST "+base+"/install", s.Door.Guard(s.install, capability.RoleAdmin))
	mux.Handle("POST "+base+"/install-url", s.Door.Guard(s.installURL, capability.RoleAdmin))
	mux.Handle("GET "+base+"/{id}", s.Door.Guard(s.show))
	// Separate patterns for install/{id} and {id}/icon would conflict.
	mux.Handle("GET "+base+"/{id}/{part}", s.Door.Guard(s.part))
	mux.Handle("POST "+base+"/{id}/enable", s.Door.Guard(s.enable, capability.RoleAdmin))
	mux.Handle("POST "+base+"/{id}/disable", s.Door.Guard(s.disable, capability.RoleAdmin))
	mux.Handle("DELETE "+base+"/{id}", s.Door.Guard(s.uninstall, capability.RoleAdmin))
	mux.Handle("PUT "+base+"/{id}/config", s.Door.Guard(s.setConfig, capability.RoleAdmin, capability.RoleOperator))
	manages := []capability.Role{capability.RoleAdmin, capability.RoleOperator}
	mux.Handle("GET /api/v1/catalog/operator", s.Door.Guard(s.operatorCatalog, manages...))
	mux.Handle("POST /api/v1/catalog/eval", s.Door.Guard(s.evaluate, manages...))
	mux.Handle("GET /api/v1/catalog/static", s.Door.Guard(s.staticCatalogs, manages...))
	mux.Handle("GET /api/v1/catalog/static/{name}", s.Door.Guard(s.staticCatalog, manages...))
	mux.Handle("GET /api/v1/sandbox", s.Door.Guard(s.sandbox(false)))
	mux.Handle("POST /api/v1/sandbox/selftest", s.Door.Guard(s.sandbox(true), capability.RoleAdmin, capability.RoleOperator))
}

// part handles GET install/{install}, {id}/icon, {id}/screen and {id}/config.
func (s *Surface) part(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	id, part := r.PathValue("id"), r.PathValue("part")
	manages := who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
	switch {
	case id == "install":
		rec, err := s.Extensions.Record(r.Context(), part)
		return httpapi.Answer(w, rec, err)
	case part == "icon":
		return s.icon(w, id)
	case part != "screen" && part != "config" && part != "logs":
		return capability.Errorf(capability.CodeNotFound, "extensions",
			"there is no %q of an extension; there are icon, screen, config and logs", part)
	case !manages:
		return capability.Errorf(capability.CodeDenied, "extensions."+part, "this needs a token of role admin or operator; yours has role %s",
			who.Role).With("forbidden", "")
	case part == "screen":
		screen, err := s.Extensions.Screen(r.Context(), id, visible(r))
		return httpapi.Answer(w, map[string]any{"screen": screen, "text": screen.Text(), "asks": screen.Asks()}, err)
	case part == "logs":
		return s.logs(w, r, id)
	}
	doc, err := s.Extensions.Config(r.Context(), id)
	return httpapi.Answer(w, jsonx.Raw(doc), err)
}

func (s *Surface) logs(w http.ResponseWriter, r *http.Request, id string) error {
	limit, err := httpapi.Number(r, "limit", 100, 0, maxLogs)
	if err != nil {
		return err
	}
	offset, err := httpapi.Number(r, "offset", 0, 0, maxOffset)
	if err != nil {
		return err
	}
	list, err := s.Extensions.Logs(r.Context(), id, limit, offset)
	raw := make([]jsonx.Raw, len(list))
	for i := range list {
		raw[i] = jsonx.Raw(list[i])
	}
	return httpapi.Answer(w, map[string]any{"records": raw}, err)
}

func (s *Surface) sandbox(fresh bool) httpapi.Handler {
	return func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		report, err := s.Extensions.Sandbox(r.Context(), fresh)
		if err != nil {
			return err
		}
		return httpapi.Answer(w, report.Status(), nil)
	}
}

func (s *Surface) list(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	enabled, err := httpapi.Flag(r, "enabled_only")
	if err != nil {
		return err
	}
	status := r.URL.Query().Get("status")
	if states := []string{"INSTALLING", "INSTALLED", "FAILED", "UNINSTALLED"}; status != "" && !slices.Contains(states, status) {
		return capability.Errorf(capability.CodeInvalidInput, "extensions.list", "status: %q is not known; use %s", status,
			strings.Join(states, ", "))
	}
	list, err := s.Extensions.List(r.Context(), lifecycle.Filter{EnabledOnly: enabled, Status: lifecycle.Status(status)})
	return httpapi.Answer(w, map[string]any{"extensions": list}, err)
}

func (s *Surface) doctor(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	findings, err := s.Extensions.Findings(r.Context())
	return httpapi.Answer(w, map[string]any{"findings": findings}, err)
}

func (s *Surface) show(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	x, err := s.Extensions.Show(r.Context(), r.PathValue("id"))
	return httpapi.Answer(w, x, err)
}

func visible(r *http.Request) []string {
	text := r.URL.Query().Get("agent_visible")
	if text == "" {
		return nil
	}
	return strings.Split(text, ",")
}

// install installs the package in the body, or in the part "file" of a multipart form.
// Its sha256 may be a query parameter or a part. The query parameter agreed is the tree_hash of the
// screen that the operator has agreed to.
func (s *Surface) install(w http.ResponseWriter, r *http.Request, who capability.Principal) (err error) {
	force, err := httpapi.Flag(r, "force")
	if err != nil {
		return err
	}
	tmp, err := os.CreateTemp("", "junctor-upload-*")
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "install", "the upload has no room", err)
	}
	defer func() { err = errors.Join(err, tmp.Close(), os.Remove(tmp.Name())) }()
	src := lifecycle.Source{Zip: tmp, SHA256: r.URL.Query().Get("sha256")}
	if kind, _, _ := mime.ParseMediaType(r.Header.Get("Content-Type")); kind == "multipart/form-data" {
		err = s.form(r, tmp, &src)
	} else {
		src.Size, err = s.save(tmp, r.Body)
	}
	if err != nil {
		return err
	}
	if src.Size == 0 {
		return capability.Errorf(capability.CodeInvalidInput, "install", "the request holds no package").With("",
			"send the zip file as the body, or as the part file of a form")
	}
	rec, err := s.Extensions.Install(r.Context(), who, src, lifecycle.Options{Force: force, Agree: agreeTo(r.URL.Query().Get("agreed"))})
	return httpapi.Answer(w, rec, err)
}

// agreeTo returns the agreement to one package, by the tree_hash of its screen.
func agreeTo(hash string) func(extension.Screen) bool {
	return func(screen extension.Screen) bool { return hash != "" && hash == screen.TreeHash }
}

func (s *Surface) form(r *http.Request, to io.Writer, src *lifecycle.Source) error {
	form, err := r.MultipartReader()
	for err == nil {
		var part *multipart.Part
		if part, err = form.NextPart(); err != nil {
			break
		}
		switch part.FormName() {
		case "file":
			if src.Size != 0 {
				return capability.Errorf(capability.CodeInvalidInput, "install", "the form has two files")
			}
			if src.Size, err = s.save(to, part); err != nil {
				return err
			}
		case "sha256":
			var text []byte
			text, err = io.ReadAll(io.LimitReader(part, 65)) // a longer one is ignored
			src.SHA256 = string(text)
		}
	}
	if !errors.Is(err, io.EOF) {
		return capability.Wrap(capability.CodeInvalidInput, "install", "the form cannot be read", err)
	}
	return nil
}

// save writes an upload to a file and counts its bytes.
func (s *Surface) save(to io.Writer, from io.Reader) (int64, error) {
	n, err := io.Copy(to, io.LimitReader(from, s.MaxPackage+1))
	if err != nil {
		return 0, capability.Wrap(capability.CodeInvalidInput, "install", "the upload is cut short", err)
	}
	if n > s.MaxPackage {
		return 0, capability.Errorf(capability.CodeTooLarge, "install", "the package has more than %d MiB",
			s.MaxPackage>>20).With("archive_too_large", "")
	}
	return n, nil
}

func (s *Surface) installURL(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req struct {
		URL    string `json:"url"`
		SHA256 string `json:"sha256,omitempty"`
		Force  bool   `json:"force,omitempty"`
		Agreed string `json:"agreed,omitempty"` // tree_hash of the screen that the operator has agreed to
	}
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	if req.URL == "" {
		return capability.Errorf(capability.CodeInvalidInput, "decode", "url is needed")
	}
	rec, err := s.Extensions.Install(r.Context(), who, lifecycle.Source{URL: req.URL, SHA256: req.SHA256}, lifecycle.Options{
		Force: req.Force, Agree: agreeTo(req.Agreed),
	})
	return httpapi.Answer(w, rec, err)
}

func (s *Surface) enable(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var c consented
	if err := httpapi.Decode(w, r, &c); err != nil {
		return err
	}
	x, err := s.Extensions.Enable(r.Context(), who, r.PathValue("id"), lifecycle.Answer(c))
	return httpapi.Answer(w, x, err)
}

func (s *Surface) disable(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	kill, err := httpapi.Flag(r, "kill")
	if err != nil {
		return err
	}
	x, err := s.Extensions.Disable(r.Context(), who, r.PathValue("id"), kill)
	return httpapi.Answer(w, x, err)
}

func (s *Surface) uninstall(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	keep, err := httpapi.Flag(r, "keep_work")
	if err != nil {
		return err
	}
	rec, err := s.Extensions.Uninstall(r.Context(), who, r.PathValue("id"), lifecycle.Removal{KeepWork: keep})
	return httpapi.Answer(w, rec, err)
}

func (s *Surface) setConfig(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, httpapi.MaxBody)
	if err != nil {
		return err
	}
	doc, err := s.Extensions.SetConfig(r.Context(), who, r.PathValue("id"), body)
	return httpapi.Answer(w, jsonx.Raw(doc), err)
}

// icon writes an icon with its image type and a Content-Security-Policy that denies
// everything, because the file is untrusted.
func (s *Surface) icon(w http.ResponseWriter, id string) error {
	data, name, err := s.Extensions.Icon(id)
	if err != nil {
		return err
	}
	kind, ok := map[string]string{
		".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".svg": "image/svg+xml",
		".webp": "image/webp", ".ico": "image/x-icon",
	}[strings.ToLower(path.Ext(name))]
	if !ok {
		return capability.Errorf(capability.CodeNotFound, "icon", "the icon is of no kind that can be shown")
	}
	h := w.Header()
	h.Set("Content-Type", kind)
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	_, err = w.Write(data)
	return err
}
