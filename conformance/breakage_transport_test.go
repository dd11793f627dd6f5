package conformance_test

import (
	"bytes"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/protocol/router"
)

const (
	token = "a-token"
	// callers ask at the same time, after so many listings that were answered.
	callers, listsBefore = 16, 4
	// neverEnds is the breakage that a call has to be given up on; the others are
	// answered long before patience is at an end.
	neverEnds   = "answer that never ends"
	waitTimeout = 20 * time.Second
)

// trusting accepts every caller of the selected paths.
func trusting(on asked) breakage {
	return as(on, func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+token) })
}

func brokenTransport() []broken {
	const action = "plugin.action.invoke"
	page := func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/html")
		_, _ = io.WriteString(w, "<html>")
	}
	envelope := func(change func(e object)) breakage {
		return failures(func(was int, e object) (int, object) {
			change(e)
			return was, e
		})
	}
	traversal := func(marker string) asked {
		return func(r *http.Request, _ string) bool { return strings.Contains(r.URL.EscapedPath(), marker) }
	}
	bundle := func(r *http.Request, _ string) bool { return strings.HasSuffix(r.URL.Path, ".js") }
	return []broken{
		{"HTTP 500 for a capability's failure", failures(func(was int, e object) (int, object) {
			if was == http.StatusOK {
				was = http.StatusInternalServerError
			}
			return was, e
		}), "unknown module", "status 500, not 200"},
		{"HTTP 200 for malformed JSON", failures(func(was int, e object) (int, object) {
			if was == http.StatusBadRequest {
				was = http.StatusOK
			}
			return was, e
		}), "malformed JSON", "status 200, not 400"},
		{"HTTP 200 for an unknown path", failures(func(was int, e object) (int, object) {
			if was == http.StatusNotFound {
				was = http.StatusOK
			}
			return was, e
		}), "unknown path", "404"},
		{"envelope without code", envelope(func(e object) { delete(e, "code") }), "unknown method", "has no code"},
		{"unknown code", envelope(func(e object) { e["code"] = "OOPS" }), "unknown method", `unknown code "OOPS"`},
		{"envelope without message", envelope(func(e object) { delete(e, "message") }), "unknown module", "has no message"},
		{"null in an envelope", envelope(func(e object) { e["capability"] = nil }), "unknown module", "capability is null"},
		{
			"wrong code", envelope(func(e object) { e["code"] = router.CodeRequestFailed }), "unknown action",
			"code CAPABILITY_REQUEST_FAILED, not CAPABILITY_UNAVAILABLE",
		},
		{"no envelope", failures(func(int, object) (int, object) { return 500, nil }), "missing parameter", "no error envelope"},
		{"redirect of calls", instead(path(pathInvoke), func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "/elsewhere", http.StatusPermanentRedirect)
		}), "plugin.modules.list", "redirect"},
		{"answers that are not JSON", body(invoked(action), says("done")), action, "not JSON"},
		{"truncated JSON", body(invoked(action), func(was []byte) []byte { return was[:len(was)-2] }), action, "not JSON"},
		{"bytes after the JSON", body(invoked(action), func(was []byte) []byte { return append(slices.Clone(was), '}') }), action, "not JSON"},
		{
			"connection cut in the answer", body(invoked("plugin.model.invoke"), func([]byte) []byte { panic(http.ErrAbortHandler) }),
			"plugin.model.invoke", "broke before",
		},
		{neverEnds, func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				method, answer := recorded(next, r)
				if method != "plugin.provider.get" {
					relay(w, answer, 0, nil)
					return
				}
				_, _ = w.Write(answer.Body.Bytes()[:5])
				_ = http.NewResponseController(w).Flush()
				<-r.Context().Done()
			})
		}, "plugin.provider.get", "in time"},
		{"unknown method answered ok", body(invoked("plugin.no.such"), says(`{"ok":true,"result":{}}`)), "unknown method", "no error envelope"},
		{"unknown action answered ok", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				method, answer := recorded(next, r)
				if method == action && bytes.Contains(answer.Body.Bytes(), []byte(`"ok":false`)) {
					relay(w, answer, 0, []byte(`{"ok":true,"result":{"text":""}}`))
					return
				}
				relay(w, answer, 0, nil)
			})
		}, "unknown action", "no error envelope"},
		{
			"wrong verb answered", instead(func(r *http.Request, _ string) bool { return r.Method == http.MethodDelete }, page), "wrong verb",
			"not 200",
		},
		{"unbounded body accepted", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ContentLength > 1<<20 {
					_, _ = io.Copy(io.Discard, r.Body)
					_, _ = io.WriteString(w, `{"ok":true,"result":{"modules":[]}}`)
					return
				}
				next.ServeHTTP(w, r)
			})
		}, "oversized body", "not 413"},
		{"down after a giant body", func(next http.Handler) http.Handler {
			var down atomic.Bool
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				if r.ContentLength > 1<<20 {
					down.Store(true)
				}
				if down.Load() {
					w.WriteHeader(http.StatusRequestEntityTooLarge)
					return
				}
				next.ServeHTTP(w, r)
			})
		}, "oversized body", "does not answer afterwards"},
		{"one call at a time", func(next http.Handler) http.Handler {
			var busy, lists atomic.Int64
			first := make(chan struct{})
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				method, answer := recorded(next, r)
				// The listings of a run before its last check come one by one.
				if method == "plugin.modules.list" && answer.Code == http.StatusOK && lists.Add(1) > listsBefore {
					if busy.Add(1) > 1 {
						relay(w, answer, http.StatusServiceUnavailable, []byte("busy"))
						if busy.Load() == callers {
							close(first)
						}
						return
					}
					<-first
				}
				relay(w, answer, 0, nil)
			})
		}, "concurrency", "status 503"},
		{"HTTP asset differs", body(bundle, says("other")), "HTTP asset", "is not the asset the RPC gives"},
		{"HTTP asset missing", instead(bundle, http.NotFound), "HTTP asset", "status 404"},
		{"HTTP asset as a page", header(bundle, "Content-Type", "text/html"), "HTTP asset", "not a script"},
		{"HTTP asset with another integrity", header(bundle, router.HeaderIntegrity, "sha256-x"), "HTTP asset", router.HeaderIntegrity},
		{"HTTP asset traversal served", instead(traversal("/%2e%2e/"), page), "asset traversal", "%2e%2e"},
		{"HTTP asset traversal by an encoded slash", instead(traversal("..%2f"), page), "asset traversal", "..%2f"},
		{"HTTP asset traversal by a backslash", instead(traversal("%5c"), page), "asset traversal", "%5c"},
		{"HTTP asset that does not exist", instead(traversal("no-such-asset"), page), "unknown asset", "200"},
		{"RPC asset traversal served", func(next http.Handler) http.Handler {
			return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				method, answer := recorded(next, r)
				if method == "plugin.asset.get" && bytes.Contains(answer.Body.Bytes(), []byte(`"ok":false`)) {
					relay(w, answer, 0, []byte(`{"ok":true,"result":{"path":"/x.js","contentType":"text/javascript","bodyBase64":"AAAA"}}`))
					return
				}
				relay(w, answer, 0, nil)
			})
		}, "asset traversal", "does not fail"},
		{"no token asked for availability", trusting(availability), "auth", pathAvailability + " with no token answers 200"},
		{"no token asked for calls", trusting(path(pathInvoke)), "auth", pathInvoke + " with no token answers 200"},
		{
			"no token asked for assets", trusting(path(pathAssets)), "auth",
			pathAssets + "field-notes/assets/field-notes.js with no token answers 200",
		},
		{
			"unknown paths told to strangers", instead(path("/v1/no-such-path"), http.NotFound), "auth",
			"/v1/no-such-path with no token answers 404",
		},
		{"wrong token accepted", as(path("/"), func(r *http.Request) {
			if r.Header.Get("Authorization") != "" {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}), "auth", "with a wrong token answers 200"},
		{"longer token accepted", as(path("/"), func(r *http.Request) {
			if strings.HasPrefix(r.Header.Get("Authorization"), "Bearer "+token) {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}), "auth", "with a longer token answers 200"},
		{"beginning of the token accepted", as(path("/"), func(r *http.Request) {
			if given := r.Header.Get("Authorization"); given != "" && strings.HasPrefix("Bearer "+token, given) {
				r.Header.Set("Authorization", "Bearer "+token)
			}
		}), "auth", "with a shortened token answers 200"},
		{"403 for strangers", failures(func(was int, e object) (int, object) {
			if was == http.StatusUnauthorized {
				was = http.StatusForbidden
			}
			return was, e
		}), "auth", "answers 403, not 401"},
		{"401 without an envelope", failures(func(was int, e object) (int, object) {
			if was == http.StatusUnauthorized {
				return was, nil
			}
			return was, e
		}), "auth", "no error envelope"},
	}
}
