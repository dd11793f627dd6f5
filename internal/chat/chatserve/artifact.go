package chatserve

import (
	"mime"
	"net/http"
	"path"
	"slices"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store/blob"
)

// refs returns the artifacts of the run {id} that the principal may see: those of their
// own runs; an admin or operator sees everyone's. Error: not_found if that leaves none.
func (s *Surface) refs(r *http.Request, who capability.Principal) ([]blob.Ref, error) {
	list, err := s.Blobs.List(r.Context(), r.PathValue("id"))
	manages := who.Role == capability.RoleAdmin || who.Role == capability.RoleOperator
	list = slices.DeleteFunc(list, func(ref blob.Ref) bool { return ref.Principal != who.ID && !manages })
	if err == nil && len(list) == 0 {
		err = capability.Errorf(capability.CodeNotFound, "artifacts", "the run %q has no artifacts, or they are gone: they are kept for a day",
			r.PathValue("id"))
	}
	return list, err
}

// artifacts lists the artifacts of a run.
func (s *Surface) artifacts(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	list, err := s.refs(r, who)
	return answer(w, map[string]any{"artifacts": list}, err)
}

// artifact serves one artifact of a run. Its content is untrusted, so headers make browsers
// download it instead of showing it as a page of this server.
func (s *Surface) artifact(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	list, err := s.refs(r, who)
	if err != nil {
		return err
	}
	name := r.PathValue("name")
	i := slices.IndexFunc(list, func(ref blob.Ref) bool { return ref.Name == name })
	if i < 0 {
		return capability.Errorf(capability.CodeNotFound, "artifacts", "the run %q has no artifact of that name", r.PathValue("id"))
	}
	f, err := s.Blobs.Read(list[i])
	if err != nil {
		return err
	}
	defer f.Close()
	h := w.Header()
	h.Set("Content-Type", list[i].MIME)
	h.Set("Content-Disposition", mime.FormatMediaType("attachment", map[string]string{"filename": path.Base(name)}))
	h.Set("Content-Security-Policy", "default-src 'none'; sandbox")
	h.Set("ETag", `"`+list[i].SHA256+`"`)
	http.ServeContent(w, r, "", time.Time{}, f)
	return nil
}
