package httpapi

import (
	"crypto/sha256"
	"encoding/hex"
	"net/http"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// WriteCatalog writes a catalog with a strong etag, the SHA-256 of its content without the
// generation. For a request with the same etag it responds 304 without content.
func WriteCatalog(w http.ResponseWriter, r *http.Request, generation uint64, body map[string]any) error {
	content, err := jsonx.Marshal(body)
	if err != nil {
		return err
	}
	sum := sha256.Sum256(content)
	etag := hex.EncodeToString(sum[:])
	tag := `"` + etag + `"`
	w.Header().Set("Etag", tag)
	if r.Header.Get("If-None-Match") == tag {
		w.WriteHeader(http.StatusNotModified)
		return nil
	}
	if r.URL.Query().Get("etag") == etag {
		WriteJSON(w, http.StatusOK, map[string]any{"audience": body["audience"], "etag": etag, "unchanged": true})
		return nil
	}
	body["generation"], body["etag"] = generation, etag
	WriteJSON(w, http.StatusOK, body)
	return nil
}
