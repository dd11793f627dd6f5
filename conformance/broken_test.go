package conformance_test

import (
	"bytes"
	"encoding/json"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
)

type object = map[string]any

// breakage is one thing that is wrong with an otherwise sound endpoint, made by
// what stands before it.
type breakage func(next http.Handler) http.Handler

// recorded serves a request and returns the method it invoked, if any, and the
// answer before it is sent.
func recorded(next http.Handler, r *http.Request) (method string, answer *httptest.ResponseRecorder) {
	if r.URL.Path == pathInvoke && r.Method == http.MethodPost && r.ContentLength < 1<<20 {
		body, _ := io.ReadAll(r.Body)
		r.Body = io.NopCloser(bytes.NewReader(body))
		var call struct{ Method string }
		_ = json.Unmarshal(body, &call)
		method = call.Method
	}
	answer = httptest.NewRecorder()
	next.ServeHTTP(answer, r)
	return method, answer
}

const (
	pathAvailability = "/v1/capabilities"
	pathInvoke       = "/v1/capabilities/invoke"
	pathAssets       = "/v1/capabilities/assets/"
)

// relay sends what was recorded, with another status and body where they are set.
func relay(w http.ResponseWriter, answer *httptest.ResponseRecorder, status int, body []byte) {
	maps.Copy(w.Header(), answer.Header())
	if status == 0 {
		status = answer.Code
	}
	if body == nil {
		body = answer.Body.Bytes()
	}
	w.Header().Set("Content-Length", strconv.Itoa(len(body)))
	w.WriteHeader(status)
	_, _ = w.Write(body)
}

// asked selects requests: by path, or by the method they invoke.
type asked func(r *http.Request, method string) bool

func invoked(name string) asked {
	return func(_ *http.Request, method string) bool { return method == name }
}

func path(prefix string) asked {
	return func(r *http.Request, _ string) bool { return strings.HasPrefix(r.URL.Path, prefix) }
}

func availability(r *http.Request, _ string) bool { return r.URL.Path == pathAvailability }

// body replaces the bytes of an answer; a nil result leaves them.
func body(on asked, change func(was []byte) []byte) breakage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			method, answer := recorded(next, r)
			if on(r, method) && answer.Code == http.StatusOK {
				relay(w, answer, 0, change(answer.Body.Bytes()))
				return
			}
			relay(w, answer, 0, nil)
		})
	}
}

func says(text string) func([]byte) []byte { return func([]byte) []byte { return []byte(text) } }

// failures replaces the failure envelopes; change gets status and error.
func failures(change func(status int, e object) (int, object)) breakage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, answer := recorded(next, r)
			var envelope object
			if json.Unmarshal(answer.Body.Bytes(), &envelope) != nil || envelope["ok"] != false {
				relay(w, answer, 0, nil)
				return
			}
			status, e := change(answer.Code, envelope["error"].(object))
			envelope["error"] = e
			text, _ := json.Marshal(envelope)
			relay(w, answer, status, text)
		})
	}
}

// result changes the result of one method, as an object.
func result(method string, change func(o object)) breakage {
	return body(invoked(method), func(was []byte) []byte {
		var envelope struct {
			OK     bool   `json:"ok"`
			Result object `json:"result"`
		}
		if json.Unmarshal(was, &envelope) != nil || !envelope.OK {
			return nil
		}
		change(envelope.Result)
		out, _ := json.Marshal(envelope)
		return out
	})
}

// becomes replaces the whole result of one method.
func becomes(method, text string) breakage {
	return body(invoked(method), func(was []byte) []byte {
		if !bytes.HasPrefix(was, []byte(`{"ok":true`)) {
			return nil
		}
		return []byte(`{"ok":true,"result":` + text + `}`)
	})
}

// modules changes the manifests.
func modules(change func(list []any) []any) breakage {
	return result("plugin.modules.list", func(o object) { o["modules"] = change(o["modules"].([]any)) })
}

// item changes the first item of a list, or the object of that name, in every
// module that has it; a nil value removes the member.
func item(list, name string, value any) breakage {
	return modules(func(all []any) []any {
		for _, m := range all {
			at, ok := m.(object), true
			switch x := at[list].(type) {
			case []any:
				at, ok = x[0].(object)
			case object:
				at = x
			default:
				ok = list == ""
			}
			switch {
			case !ok:
			case value == nil:
				delete(at, name)
			case value == null:
				at[name] = nil
			default:
				at[name] = value
			}
		}
		return all
	})
}

// null stands for the JSON null, which is not the same as nothing.
const null = "\x00null"

// instead answers the selected requests itself.
func instead(on asked, do http.HandlerFunc) breakage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if on(r, "") {
				do(w, r)
				return
			}
			next.ServeHTTP(w, r)
		})
	}
}

// header changes the headers of an answer.
func header(on asked, name, value string) breakage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			method, answer := recorded(next, r)
			if on(r, method) && answer.Code == http.StatusOK {
				answer.Header().Set(name, value)
			}
			relay(w, answer, 0, nil)
		})
	}
}

// as changes the request before the endpoint sees it.
func as(on asked, change func(r *http.Request)) breakage {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if on(r, "") {
				change(r)
			}
			next.ServeHTTP(w, r)
		})
	}
}
