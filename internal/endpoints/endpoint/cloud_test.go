package endpoint_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/endpoints/endpoint"
	"github.com/junctor-run/junctor/secret"
)

// cloud answers as the test says, by method and path; the last answer of a path
// is repeated. URL stands for the endpoint's URL in a body.
type cloud struct {
	mu      sync.Mutex
	answers map[string][]string // "POST /path" → "status body"
	asked   []string
}

func (c *cloud) ServeHTTP(w http.ResponseWriter, req *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	body, _ := io.ReadAll(req.Body)
	key := req.Method + " " + req.URL.Path
	c.asked = append(c.asked, key+" "+string(body))
	if req.Header.Get("Authorization") != "Bearer cloud-key" || req.Header.Get("Content-Type") != "application/json" {
		w.WriteHeader(http.StatusUnauthorized)
		return
	}
	list := c.answers[key]
	if len(list) == 0 {
		w.WriteHeader(http.StatusNotFound)
		return
	}
	if len(list) > 1 {
		c.answers[key] = list[1:]
	}
	var status int
	text := list[0][3:]
	_, _ = fmt.Sscan(list[0][:3], &status)
	w.WriteHeader(status)
	_, _ = io.WriteString(w, text)
}

func (c *cloud) count(prefix string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, a := range c.asked {
		if strings.HasPrefix(a, prefix) {
			n++
		}
	}
	return n
}

const (
	agents    = "POST /api/v1/eliza/agents"
	provision = "POST /api/v1/eliza/agents/a1/provision"
	job       = "GET /api/v1/jobs/j1"
	remove    = "DELETE /api/v1/eliza/agents/a1"
)

func TestCloudEndpoints(t *testing.T) {
	t.Parallel()
	const made, queued, pending = `200{"data":{"id":"a1"}}`, `202{"jobId":"j1"}`, `200{"data":{"status":"pending"}}`
	for name, c := range map[string]struct {
		answers map[string][]string
		code    capability.Code // "" connected
		says    string
		polls   int // at most
		removed int
	}{
		"ready at once": {
			map[string][]string{agents: {`201{"id":"a1"}`}, provision: {`200{"data":{"bridge_url":"URL","token":"t0ken"}}`}},
			"",
			"", 0, 0,
		},
		"after a job": {map[string][]string{
			agents: {made}, provision: {`200{"data":{"jobId":"j1"}}`},
			job: {pending, `500`, `429`, pending, `200{"data":{"status":"completed","result":{"capabilityRouterUrl":"URL","capabilityRouterToken":"t0ken"}}}`},
		}, "", "", 5, 0},
		"no agent":            {map[string][]string{agents: {`401{}`}}, capability.CodeFailed, "401", 0, 0},
		"an agent without id": {map[string][]string{agents: {`200{}`}}, capability.CodeFailed, "id", 0, 0},
		"no provision":        {map[string][]string{agents: {made}, provision: {`500`}, remove: {`204`}}, capability.CodeFailed, "500", 0, 1},
		"neither URL nor job": {
			map[string][]string{agents: {made}, provision: {`200{}`}, remove: {`204`}},
			capability.CodeFailed, "job", 0,
			1,
		},
		"refused while polling": {
			map[string][]string{agents: {made}, provision: {queued}, job: {pending, `404`}, remove: {`204`}},
			capability.CodeFailed, "404", 2, 1,
		},
		"completed without a URL": {map[string][]string{
			agents: {made}, provision: {queued}, job: {`200{"status":"completed"}`},
			remove: {`204`},
		}, capability.CodeFailed, "URL", 1, 1},
		"a failed job": {map[string][]string{
			agents: {made}, provision: {queued}, job: {`200{"status":"failed","error":"no room"}`},
			remove: {`500`},
		}, capability.CodeFailed, "no room", 1, 1},
		"never ready": {
			map[string][]string{agents: {made}, provision: {queued}, job: {pending}, remove: {`204`}},
			capability.CodeTimeout, "j1", 1000, 1,
		},
		"the wrong token": {
			map[string][]string{agents: {made}, provision: {`200{"bridgeUrl":"URL","token":"wrong"}`}, remove: {`204`}},
			capability.CodeFailed, "", 0, 1,
		},
		"nobody there": {
			map[string][]string{agents: {made}, provision: {`200{"bridgeUrl":"http://127.0.0.1:1"}`}, remove: {`204`}},
			capability.CodeTimeout, "127.0.0.1:1", 0, 1,
		},
		"not JSON":   {map[string][]string{agents: {`200<html>`}}, capability.CodeFailed, "JSON", 0, 0},
		"a redirect": {map[string][]string{agents: {`302`}}, capability.CodeFailed, "302", 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			h := device(t)
			for key, list := range c.answers {
				for i := range list {
					list[i] = strings.ReplaceAll(list[i], "URL", h.url())
				}
				c.answers[key] = list
			}
			fake := &cloud{answers: c.answers}
			r := newRig(t, nil)
			timeout := time.Minute
			if c.code == capability.CodeTimeout {
				timeout = 2 * time.Second // the agent must be created and removed within it
			}
			status, synced, done, err := r.ConnectCloud(t.Context(), endpoint.CloudRequest{
				APIBase: serve(t, fake).url() + "/api/v1/", AuthToken: secret.New("cloud-key"), Name: "n", Bio: []string{"b"},
				Timeout: timeout, PollInterval: time.Millisecond,
			}, endpoint.Request{Persist: true, By: admin()})
			if n := fake.count(job); n > c.polls {
				t.Errorf("polled %d times; want n at most %v", n, c.polls)
			}
			if n := fake.count(remove); n != c.removed {
				t.Errorf("removed %d times: %v; want n = %v", n, fake.asked, c.removed)
			}
			if c.code != "" {
				if e := capability.AsError(err); err == nil || e.Code != c.code || !strings.Contains(e.Message, c.says) ||
					strings.Contains(e.Message, "cloud-key") {
					t.Errorf(`%v; want an error, e.Code = %v, e.Message with %v, e.Message without "cloud-key"`, err, c.code, c.says)
				}
				if len(r.List()) != 0 || r.vault.len() != 0 {
					t.Errorf("something stayed: %+v; want len(r.List()) = 0, r.vault.len() = 0", r.List())
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if status.ID != "cloud-capability" || status.Provider != "cloud" || done.AgentID != "a1" || len(synced.Registered) != 2 ||
				!status.HasToken {
				t.Errorf(`%+v %+v %+v; want status.ID = "cloud-capability", status.Provider = "cloud", done.AgentID = "a1", `+
					"len(synced.Registered) = 2, status.HasToken = true", status, synced, done)
			}
			if !strings.Contains(fake.asked[0], `{"agentConfig":{"bio":["b"]},"agentName":"n","statefulRuntime":true}`) {
				t.Errorf("request = %q, want the agent's name, configuration and state", fake.asked[0])
			}
			r.must("device-tools:action:DEVICE_PING", `{"text":"x"}`)
		})
	}
}

// A module that is not trusted costs the agent that was made for it.
func TestACloudEndpointThatCannotConnectIsRemoved(t *testing.T) {
	t.Parallel()
	h := device(t)
	fake := &cloud{answers: map[string][]string{
		agents: {`200{"id":"a1"}`}, provision: {`200{"bridgeUrl":"` + h.url() + `"}`},
		remove: {`204`},
	}}
	base := serve(t, fake).url()
	r := newRig(t, nil)
	_, _, _, err := r.ConnectCloud(t.Context(), endpoint.CloudRequest{
		APIBase: base, AuthToken: secret.New("cloud-key"), Name: "n",
		Token: secret.New(token), PollInterval: time.Millisecond,
	},
		endpoint.Request{TrustPolicy: newSigner(t).policy()})
	if fails(t, err, capability.CodeDenied, "module_not_trusted"); fake.count(remove) != 1 || len(r.List()) != 0 {
		t.Errorf("%v %+v; want fake.count(remove) = 1, len(r.List()) = 0", fake.asked, r.List())
	}
	for _, bad := range []endpoint.CloudRequest{
		{APIBase: "ftp://x", AuthToken: secret.New("k"), Name: "n"},
		{APIBase: "http://a:b@x", AuthToken: secret.New("k"), Name: "n"},
		{APIBase: base, Name: "n"},
		{APIBase: base, AuthToken: secret.New("k"), Name: " "},
	} {
		_, _, _, err := r.ConnectCloud(t.Context(), bad, endpoint.Request{})
		fails(t, err, capability.CodeInvalidInput, "")
	}
}
