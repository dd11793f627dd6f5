package nodeserve

import (
	"io"
	"net/http"
	"regexp"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/protocol/cmp/wire"
)

var digestGrammar = regexp.MustCompile(`^[0-9a-f]{64}$`)

// nodeOf states which node sent a request: by the proof of its key, or by its token
// and the name it gives itself.
func (s *Surface) nodeOf(r *http.Request) (string, error) {
	header := r.Header.Get("Authorization")
	if token := bearer(r); token != "" {
		node := r.Header.Get("Junctor-Node")
		if err := cmp.CheckNode(node); err != nil {
			return "", err
		}
		return node, s.Admission.TokenNode(r.Context(), token, node)
	}
	proof, err := wire.ReadProof(header)
	if err != nil {
		return "", err
	}
	key, err := s.Admission.Key(r.Context(), proof.Node)
	if err != nil {
		return "", err
	}
	return proof.Node, proof.Verify(key, r.Method, r.URL.Path, s.Now())
}

func digestOf(r *http.Request) (string, error) {
	digest := strings.TrimPrefix(r.PathValue("digest"), "sha256:")
	if !digestGrammar.MatchString(digest) {
		return "", capability.Errorf(capability.CodeInvalidInput, "assets", "%.80q is not a SHA-256 in lower-case hex", digest)
	}
	return digest, nil
}

func (s *Surface) putAsset(w http.ResponseWriter, r *http.Request) {
	node, err := s.nodeOf(r)
	var digest string
	if err == nil {
		digest, err = digestOf(r)
	}
	var who capability.Principal // not the node, because a token may have any number of nodes
	if err == nil {
		who, err = s.Admission.Principal(r.Context(), node)
	}
	var asset cmp.Asset
	if err == nil {
		asset, err = s.Assets.Put(r.Context(), who.ID, digest, r.Header.Get("Content-Type"), http.MaxBytesReader(w, r.Body, cmp.MaxAsset))
	}
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	httpapi.WriteJSON(w, http.StatusCreated, asset)
}

// getAsset gives a value to who knows its digest and is known here: a node, or any
// principal. Ranges are served, so that a transfer that broke can go on.
func (s *Surface) getAsset(w http.ResponseWriter, r *http.Request) {
	var err error
	if strings.HasPrefix(r.Header.Get("Authorization"), wire.ProofScheme+" ") {
		_, err = s.nodeOf(r)
	} else {
		_, err = s.Door.Principal(r)
	}
	var digest string
	if err == nil {
		digest, err = digestOf(r)
	}
	var data io.ReadSeekCloser
	var mediaType string
	if err == nil {
		data, mediaType, err = s.Assets.Get(r.Context(), digest)
	}
	if err != nil {
		httpapi.WriteError(w, err)
		return
	}
	defer data.Close()
	w.Header().Set("Content-Type", mediaType)
	w.Header().Set("Content-Disposition", "attachment") // what a node sent is never a page of ours
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("ETag", `"`+digest+`"`)
	w.Header().Set("Cache-Control", "private, immutable")
	http.ServeContent(w, r, "", time.Time{}, data)
}

func sendJSON(out *httpapi.Stream, kind string, v any) bool {
	data, err := jsonx.Answer(v)
	return err == nil && out.Send("", kind, data) == nil
}
