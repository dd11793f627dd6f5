// Package setupserve is the part of /api/v1 that connects MCP clients of this machine, and applies
// the files that declare upstreams and endpoints.
package setupserve

import (
	"context"
	"net/http"
	"path/filepath"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/setup/clients"
	"github.com/junctor-run/junctor/internal/setup/declared"
)

// Clients connects and disconnects clients.
type Clients interface {
	// List returns every client that is known, installed or not. folder is the folder of a project whose
	// files are read too; it may be empty.
	List(ctx context.Context, folder string) []Status
	// Connect writes junctor into a client's configuration. With DryRun it changes nothing.
	// Errors: not_found for an unknown client; invalid_input, reason client_config, for a file
	// that cannot be used; conflict, reason client_set_up.
	Connect(ctx context.Context, by capability.Principal, name string, req Request) (Result, error)
	// Disconnect undoes Connect. Error: not_found, reason client_not_set_up.
	Disconnect(ctx context.Context, by capability.Principal, name string) (Result, error)
	// PreviewUndo returns what Disconnect would do after the undo of other clients, and changes nothing.
	// Error: as of Disconnect.
	PreviewUndo(name string, after []string) (Result, error)
	// Import adds the MCP servers of a file, which stays as it is. Error: invalid_input, reason
	// client_config.
	Import(ctx context.Context, by capability.Principal, req Import) (Result, error)
}

// Status describes one client.
type Status struct {
	Name      string            `json:"name"`
	Title     string            `json:"title"`
	Found     bool              `json:"found"` // it seems to be installed
	File      string            `json:"file"`
	Fault     string            `json:"fault,omitempty"` // why the file cannot be used
	Connected bool              `json:"connected"`       // the file has an entry of junctor
	SetUp     bool              `json:"set_up"`          // junctor wrote the entry and can undo it
	Used      time.Time         `json:"used,omitzero"`   // the client's last request, if junctor set it up
	Servers   []clients.Found   `json:"servers"`
	Moved     map[string]string `json:"moved,omitempty"` // servers of the client, and the upstreams they became
}

// Request selects what Connect does.
type Request struct {
	Move       []string `json:"move"` // servers to move behind junctor; "*" means all that can be
	TrustHints bool     `json:"trust_hints"`
	DryRun     bool     `json:"dry_run"`
	// KeepUnreached leaves a server in the client if its program could not use a folder that it names, for
	// setups in which a person is not asked.
	KeepUnreached bool `json:"keep_unreached,omitempty"`
	// HTTP writes the URL of MCP and a header with the client's token instead of a command. Error:
	// invalid_input, reason client_no_http, for a client whose file has no form for it.
	HTTP bool `json:"http"`
	// Folder is the absolute path of a project, whose servers Result.Left then names too.
	Folder string `json:"folder"`
	// Folders are those that a person gives the programs of moved servers, besides those of Result.Folders.
	Folders map[string]Folders `json:"folders,omitempty"`
}

// Import is a file with MCP servers, in the form of any client.
type Import struct {
	File       string   `json:"file"` // its name, whose ending determines the syntax
	Text       string   `json:"text"`
	Move       []string `json:"move"` // servers to add; "*" means all that can be
	TrustHints bool     `json:"trust_hints"`
	DryRun     bool     `json:"dry_run"`
	// KeepUnreached and Folders are as in Request; a server that stays is not added.
	KeepUnreached bool               `json:"keep_unreached,omitempty"`
	Folders       map[string]Folders `json:"folders,omitempty"`
}

// Result describes what was done, or would be.
type Result struct {
	Client     string            `json:"client,omitempty"`
	File       string            `json:"file"`
	Difference string            `json:"difference,omitempty"` // lines of the file, with credentials masked
	Moved      map[string]string `json:"moved"`
	Left       map[string]string `json:"left,omitempty"` // servers that stay in the client, and why
	// Removed are the upstreams that an undo removed from junctor, or would.
	Removed []string `json:"removed,omitempty"`
	// Kept are the upstreams that an undo would leave, and the clients that use them.
	Kept map[string]string `json:"kept,omitempty"`
	// Warnings are sentences about what should be considered.
	Warnings []string `json:"warnings,omitempty"`
	// Folders are what the programs of the moved servers see besides the system.
	Folders map[string]Folders `json:"folders,omitempty"`
	// Unreached are the folders that moved servers name and their programs do not see, or may only read.
	Unreached map[string][]Unreached `json:"unreached,omitempty"`
	// Secrets are the names of those that an import created, or would, or that an undo would remove.
	Secrets []string `json:"secrets,omitempty"`
}

// Folders are the folders that a confined program may read, and may write.
type Folders struct {
	ReadOnly  []string `json:"read_only,omitempty"`
	ReadWrite []string `json:"read_write,omitempty"`
}

// Unreached is a folder that a program could be given. Nothing but a person's answer gives it.
type Unreached struct {
	Folder string `json:"folder"`
	From   string `json:"from"` // what names it: a variable, an argument, or the package of the program
	// Package is true for the package of a program, which only reads it.
	Package bool `json:"package,omitempty"`
	// Readable is true if the program may read it already.
	Readable bool `json:"readable,omitempty"`
	// File is the named file, if it lies directly in a folder that is too wide.
	File string `json:"file,omitempty"`
	// TooWide is true for the user's home and the folders above it. A server with such a folder stays.
	TooWide bool `json:"too_wide,omitempty"`
}

// Files makes upstreams and endpoints what files declare.
type Files interface {
	Apply(ctx context.Context, by capability.Principal, req declared.Request) (declared.Result, error)
}

// Config holds the dependencies of a Surface. All are required.
type Config struct {
	Door    *httpapi.Door
	Clients Clients
	Files   Files
}

// Surface serves the HTTP routes. Only administrators may use those about clients, because they name
// programs that are started on this machine. Operators may have the files applied that are in the
// home, which the server does by itself too.
type Surface struct{ Config }

// New returns the surface.
func New(cfg Config) *Surface { return &Surface{cfg} }

// Routes adds every path to mux.
func (s *Surface) Routes(mux *http.ServeMux) {
	admin := func(h httpapi.Handler) http.Handler { return s.Door.Guard(h, capability.RoleAdmin) }
	mux.Handle("GET /api/v1/clients", admin(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		folder := r.URL.Query().Get("folder")
		if err := checkFolder(folder); err != nil {
			return err
		}
		return httpapi.Answer(w, map[string]any{"clients": s.Clients.List(r.Context(), folder)}, nil)
	}))
	mux.Handle("POST /api/v1/clients/{name}", admin(s.connect))
	mux.Handle("DELETE /api/v1/clients/{name}", admin(s.disconnect))
	mux.Handle("GET /api/v1/clients/{name}/undo", admin(func(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
		out, err := s.Clients.PreviewUndo(r.PathValue("name"), r.URL.Query()["after"])
		return httpapi.Answer(w, out, err)
	}))
	mux.Handle("POST /api/v1/imports", admin(s.importFile))
	mux.Handle("POST /api/v1/apply", s.Door.Guard(s.apply, capability.RoleAdmin, capability.RoleOperator))
}

// maxApplyBytes bounds the request of an apply, whose files have at most 4 MiB before they are JSON.
const maxApplyBytes = 10 << 20

func (s *Surface) apply(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, maxApplyBytes)
	if err != nil {
		return err
	}
	var req declared.Request
	if len(body) > 0 {
		if err := httpapi.DecodeStrict(body, &req); err != nil {
			return err
		}
	}
	done, err := s.Files.Apply(r.Context(), who, req)
	return httpapi.Answer(w, done, err)
}

// checkFolder fails with invalid_input, reason invalid_folder, unless folder is empty or absolute.
func checkFolder(folder string) error {
	if folder == "" || filepath.IsAbs(folder) {
		return nil
	}
	return capability.Errorf(capability.CodeInvalidInput, "clients", "the folder %q of a project is not an absolute path", folder).
		With("invalid_folder", "")
}

func (s *Surface) connect(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	var req Request
	if err := httpapi.Decode(w, r, &req); err != nil {
		return err
	}
	if err := checkFolder(req.Folder); err != nil {
		return err
	}
	done, err := s.Clients.Connect(r.Context(), who, r.PathValue("name"), req)
	return httpapi.Answer(w, done, err)
}

// maxImportBytes bounds the request of an import. Claude Code's file holds the history of projects.
const maxImportBytes = 20 << 20

func (s *Surface) importFile(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	body, err := httpapi.ReadBody(w, r, maxImportBytes)
	if err != nil {
		return err
	}
	var req Import
	if err := httpapi.DecodeStrict(body, &req); err != nil {
		return err
	}
	done, err := s.Clients.Import(r.Context(), who, req)
	return httpapi.Answer(w, done, err)
}

func (s *Surface) disconnect(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	done, err := s.Clients.Disconnect(r.Context(), who, r.PathValue("name"))
	return httpapi.Answer(w, done, err)
}
