package forge

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// authority is the other side of the flow: a handler without a network, so that time
// can be the test's.
type authority struct {
	start   string   // answer to the request for a code
	answers []string // to each poll; the last one again and again
	status  int      // of polls; 0 means 200
	polls   []time.Duration
	begun   time.Time
	forms   []string
}

func (a *authority) RoundTrip(r *http.Request) (*http.Response, error) {
	if err := r.ParseForm(); err != nil {
		return nil, err
	}
	a.forms = append(a.forms, r.URL.Path+" "+r.Form.Encode()+" "+r.Header.Get("Accept"))
	w := httptest.NewRecorder()
	if r.URL.Path == "/login/device/code" {
		a.begun = time.Now()
		_, _ = w.WriteString(a.start)
		return w.Result(), nil
	}
	n := len(a.polls)
	a.polls = append(a.polls, time.Since(a.begun))
	answer := a.answers[min(n, len(a.answers)-1)]
	if answer == "lost" {
		return nil, errors.New("connection reset")
	}
	if a.status != 0 {
		w.WriteHeader(a.status)
	}
	_, _ = w.WriteString(answer)
	return w.Result(), nil
}

const (
	started = `{"device_code":"dev-1","user_code":"WDJB-MJHT","verification_uri":"https://forge.example/login/device","expires_in":900,"interval":5}`
	pending = `{"error":"authorization_pending"}`
	granted = `{"access_token":"tok-1","token_type":"bearer","scope":"gist,repo"}`
)

func TestDeviceFlow(t *testing.T) {
	t.Parallel()

	tests := []struct {
		name    string
		start   string
		answers []string
		status  int
		reason  string
		polls   []time.Duration // when; nil: not looked at
	}{
		{"granted", started, []string{pending, granted}, 0, "", []time.Duration{5 * time.Second, 10 * time.Second}},
		{
			"errors with status 400, as the RFC has them", started,
			[]string{pending, pending, `{"error":"access_denied"}`},
			400, "access_denied",
			[]time.Duration{5 * time.Second, 10 * time.Second, 15 * time.Second},
		},
		{
			"slower by five seconds", started,
			[]string{`{"error":"slow_down"}`, granted},
			0, "",
			[]time.Duration{5 * time.Second, 15 * time.Second},
		},
		{
			"slower as it says", started,
			[]string{`{"error":"slow_down","interval":30}`, pending, granted},
			0, "",
			[]time.Duration{5 * time.Second, 35 * time.Second, 65 * time.Second},
		},
		{"a lost connection", started, []string{"lost", granted}, 0, "", []time.Duration{5 * time.Second, 15 * time.Second}},
		{
			"no interval", `{"device_code":"d","user_code":"u","verification_uri":"https://x.example/"}`,
			[]string{granted},
			0, "",
			[]time.Duration{5 * time.Second},
		},
		{"nobody comes", started, []string{pending}, 0, "login_expired", nil},
		{"the code runs out", started, []string{pending, `{"error":"expired_token"}`}, 0, "login_expired", nil},
		{
			"the code runs out early", `{"device_code":"d","user_code":"u","verification_uri":"https://x.example/","expires_in":12}`,
			[]string{pending},
			0, "login_expired",
			[]time.Duration{5 * time.Second, 10 * time.Second},
		},
		{"too little granted", started, []string{`{"access_token":"t","scope":"gist"}`}, 0, "missing_scope", nil},
		{"another error", started, []string{`{"error":"incorrect_client_credentials"}`}, 0, "forge_refused", nil},
		{"no token", started, []string{`{}`}, 0, "forge_refused", nil},
		{"a token with a line break", started, []string{`{"access_token":"a\nb"}`}, 0, "forge_refused", nil},
		{"no JSON", started, []string{`<html>`}, 0, "forge_refused", nil},
		{"not allowed", `{"error":"device_flow_disabled"}`, nil, 0, "forge_refused", nil},
		{"a page that is none", `{"device_code":"d","user_code":"u","verification_uri":"javascript:alert(1)"}`, nil, 0, "forge_refused", nil},
		{"a code that is none", `{"device_code":"d","user_code":"a b\n","verification_uri":"https://x.example/"}`, nil, 0, "forge_refused", nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := &authority{start: tt.start, answers: tt.answers, status: tt.status}
				var shown []Prompt
				flow := DeviceFlow{Base: "https://forge.example/", ClientID: "client-1", Client: &http.Client{Transport: a}}
				token, err := flow.Login(t.Context(), func(p Prompt) { shown = append(shown, p) })
				if e := capability.AsError(err); tt.reason == "" && err != nil || tt.reason != "" && (e == nil || e.Reason != tt.reason) {
					t.Fatalf("got %v, want reason %q", err, tt.reason)
				}
				if tt.reason == "" && token.Reveal() != "tok-1" {
					t.Error(`it is another token; want not (tt.reason == "" && token.Reveal() != "tok-1")`)
				}
				if tt.polls != nil && !slices.Equal(a.polls, tt.polls) {
					t.Errorf("asked at %v; want not (tt.polls != nil && !slices.Equal(a.polls, tt.polls))", a.polls)
				}
				if n := len(a.polls); n > 0 && a.polls[n-1] > 300*time.Second {
					t.Errorf("asked after %v; want not (n > 0 && a.polls[n-1] > 300*time.Second)", a.polls[n-1])
				}
				if tt.start == started && (len(shown) != 1 || shown[0].Code != "WDJB-MJHT" || shown[0].URL != "https://forge.example/login/device") {
					t.Errorf("shown %+v", shown)
				}
				if a.forms[0] != "/login/device/code client_id=client-1&scope=repo application/json" {
					t.Errorf(`asked %q; want a.forms[0] = "/login/device/code client_id=client-1&scope=repo application/json"`,
						a.forms[0])
				}
				if len(a.forms) > 1 && tt.start == started && a.forms[1] != "/login/oauth/access_token client_id=client-1&device_code=dev-1&grant_type=urn%3Aietf%3Aparams%3Aoauth%3Agrant-type%3Adevice_code application/json" {
					t.Errorf("asked %q", a.forms[1])
				}
			})
		})
	}
}

func TestALoginEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
		defer cancel()
		a := &authority{start: started, answers: []string{pending}}
		began := time.Now()
		_, err := DeviceFlow{ClientID: "c", Client: &http.Client{Transport: a}}.Login(ctx, func(Prompt) {})
		if err == nil || time.Since(began) != 7*time.Second {
			t.Errorf("%v after %v; want an error, time.Since(began) = 7 * time.Second", err, time.Since(began))
		}
	})
	if _, err := (DeviceFlow{}).Login(t.Context(), nil); capability.AsError(err).Reason != "no_client_id" {
		t.Errorf(`%v; want capability.AsError(err).Reason = "no_client_id"`, err)
	}
}
