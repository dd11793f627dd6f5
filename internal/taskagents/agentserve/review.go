package agentserve

import (
	"net"
	"net/http"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/launch"
	"github.com/junctor-run/junctor/internal/taskagents/workspace"
	"github.com/junctor-run/junctor/internal/taskagents/workspace/forge"
)

type mergeRequest struct {
	Commit  string                `json:"commit"` // head of the diff that the user saw
	Method  workspace.MergeMethod `json:"method"`
	Partial bool                  `json:"partial"`
}

// publishRequest describes the pull request for a task.
type publishRequest struct {
	Commit  string `json:"commit"` // head of the diff that the user saw
	Title   string `json:"title"`
	Body    string `json:"body"`
	Base    string `json:"base"`
	Draft   bool   `json:"draft"`
	Partial bool   `json:"partial"`
}

// mergedTask is the answer to a merge.
type mergedTask struct {
	Success  bool   `json:"success"`
	ThreadID string `json:"threadId"`
	workspace.Merged
}

// discardedTask is the answer to a removal of a task's work.
type discardedTask struct {
	Success  bool     `json:"success"`
	ThreadID string   `json:"threadId"`
	Branches []string `json:"branches"`
}

// reviewedTask is the answer with the work of a task.
type reviewedTask struct {
	ThreadID string `json:"threadId"`
	launch.Reviewed
}

// reviewRequest holds the comments of a review.
type reviewRequest struct {
	Part     string               `json:"part"`
	Text     string               `json:"text"`
	Comments []launch.LineComment `json:"comments"`
}

// local reports whether a request came over the machine's own loopback address.
func local(r *http.Request) bool {
	host, _, err := net.SplitHostPort(r.RemoteAddr)
	ip := net.ParseIP(host)
	return err == nil && ip != nil && ip.IsLoopback()
}

func (s *Surface) review(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	thread := r.PathValue("thread")
	out, err := s.Launcher.Review(r.Context(), thread, r.URL.Query().Get("part"))
	return answer(w, http.StatusOK, reviewedTask{thread, out}, err)
}

func (s *Surface) merge(r *http.Request, _ capability.Principal, in mergeRequest) (mergedTask, error) {
	thread := r.PathValue("thread")
	out, err := s.Launcher.Merge(r.Context(), launch.Merge{ThreadID: thread, Commit: in.Commit, Method: in.Method, Partial: in.Partial})
	return mergedTask{true, thread, out}, err
}

func (s *Surface) pullTask(r *http.Request, _ capability.Principal, in publishRequest) (forge.Pull, error) {
	return s.Launcher.Pull(r.Context(), launch.Pull{
		ThreadID: r.PathValue("thread"), Commit: in.Commit, Title: in.Title, Body: in.Body, Base: in.Base, Draft: in.Draft, Partial: in.Partial,
	})
}

func (s *Surface) checks(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	out, err := s.Launcher.Checks(r.Context(), r.PathValue("thread"))
	return answer(w, http.StatusOK, out, err)
}

func (s *Surface) discard(r *http.Request, _ capability.Principal, _ struct{}) (discardedTask, error) {
	thread := r.PathValue("thread")
	branches, err := s.Launcher.Discard(r.Context(), thread)
	return discardedTask{true, thread, append([]string{}, branches...)}, err
}

func (s *Surface) reviewComment(r *http.Request, by capability.Principal, in reviewRequest) (controlled, error) {
	out, err := s.Launcher.Comment(r.Context(), by, launch.Comments{
		ThreadID: r.PathValue("thread"), Part: in.Part, Lines: in.Comments, Text: in.Text,
	})
	return controlled{true, out}, err
}
