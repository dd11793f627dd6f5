package console

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"errors"
	"io/fs"
	"mime"
	"net/http"
	"path"
	"strings"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

// dist holds what "make build" made of web/src. Without npm it holds absent.html alone.
//
//go:embed all:web/dist
var dist embed.FS

// contentPolicy allows scripts and styles of this server alone. The terminal makes its own style
// elements, which carry the nonce of the page.
const contentPolicy = "default-src 'none'; script-src 'self'; worker-src 'self'; style-src 'self' 'nonce-NONCE'; img-src 'self' data: blob:; " +
	"font-src 'self'; connect-src 'self'; frame-src 'self'; form-action 'none'; base-uri 'none'; frame-ancestors 'none'; " +
	"require-trusted-types-for 'script'; trusted-types junctor"

// file is one file of the page.
type file struct {
	data       []byte
	zipped     func() []byte // compresses when it is first needed; nil if that is not smaller
	kind, etag string
}

// files holds the page in memory, about a megabyte.
type files struct {
	all   map[string]file
	built bool
}

func openFiles() (*files, error) {
	f := &files{all: make(map[string]file)}
	err := fs.WalkDir(dist, "web/dist", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := dist.ReadFile(name)
		if err != nil {
			return err
		}
		f.all[strings.TrimPrefix(name, "web/dist/")] = newFile(name, data)
		return nil
	})
	if err != nil {
		return nil, capability.Wrap(capability.CodeInternal, "console", "the page cannot be read", err)
	}
	_, f.built = f.all["index.html"]
	return f, nil
}

func newFile(name string, data []byte) file {
	sum := sha256.Sum256(data)
	one := file{
		data: data, zipped: sync.OnceValue(func() []byte { return zipped(data) }), kind: mime.TypeByExtension(path.Ext(name)),
		etag: `"` + hex.EncodeToString(sum[:8]) + `"`,
	}
	if strings.HasSuffix(name, ".js") {
		one.kind = "text/javascript; charset=utf-8" // independent of the machine's table
	}
	return one
}

// zipped returns data compressed with gzip, or nil if that is not smaller.
func zipped(data []byte) []byte {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, gzip.BestCompression)
	if err == nil {
		_, err = z.Write(data)
		err = errors.Join(err, z.Close())
	}
	if err != nil || b.Len() >= len(data) {
		return nil
	}
	return b.Bytes()
}

// serve answers with a file of the page, and with the page itself for every other path, whose
// script reads the path.
func (f *files) serve(w http.ResponseWriter, r *http.Request) {
	name := strings.TrimPrefix(r.URL.Path, "/console/")
	one, ok := f.all[name]
	switch {
	case ok && name != "index.html":
	case strings.HasPrefix(name, "assets/"):
		httpapi.WriteError(w, capability.Errorf(capability.CodeNotFound, "console", "the page has no file %s", name).
			With("", "reload the page: the server was replaced by another version"))
		return
	case f.built:
		one, name = f.all["index.html"], "index.html"
	default:
		one, name = f.all["absent.html"], "absent.html"
	}
	h := w.Header()
	nonce := ids.Hex("", 16)
	h.Set("Content-Security-Policy", strings.Replace(contentPolicy, "NONCE", nonce, 1))
	h.Set("Cross-Origin-Opener-Policy", "same-origin")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Permissions-Policy", "camera=(), microphone=(), geolocation=(), usb=(), serial=(), hid=()")
	h.Set("Content-Type", one.kind)
	h.Set("Vary", "Accept-Encoding")
	if strings.HasPrefix(name, "assets/") { // their names hold a digest of their content
		h.Set("Cache-Control", "public, max-age=31536000, immutable")
	} else {
		h.Set("Cache-Control", "no-store")
	}
	if name == "index.html" {
		_, _ = w.Write(bytes.Replace(one.data, []byte("{nonce}"), []byte(nonce), 1))
		return
	}
	h.Set("ETag", one.etag)
	if r.Header.Get("If-None-Match") == one.etag {
		w.WriteHeader(http.StatusNotModified)
		return
	}
	data := one.data
	if strings.Contains(r.Header.Get("Accept-Encoding"), "gzip") {
		if z := one.zipped(); z != nil {
			h.Set("Content-Encoding", "gzip")
			data = z
		}
	}
	_, _ = w.Write(data)
}

// cookieName returns the cookie of a server: two servers on one host share the cookies of the
// host, but not this name.
func cookieName(home string, secure bool) string {
	sum := sha256.Sum256([]byte(home))
	name := "jct_console_" + hex.EncodeToString(sum[:4])
	if secure {
		return "__Host-" + name
	}
	return name
}
