package channels

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"mime/multipart"
	"net/http"
	"net/http/httptrace"
	"net/textproto"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/junctor-run/junctor/capability"
)

// ErrNotSent is the error of a request of which nothing was written.
var ErrNotSent = errors.New("the service cannot be reached")

// Client makes requests to a service. It follows no redirect and bounds answers. Its errors contain
// no URL, because the URLs of some services contain the token.
type Client struct{ http http.Client }

// NewClient returns a client with connections of its own.
func NewClient() *Client {
	return &Client{http.Client{
		Transport:     http.DefaultTransport.(*http.Transport).Clone(),
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}
}

// Do makes a request. The error is [ErrNotSent], that of the context, or another one if the answer
// was lost.
func (c *Client) Do(req *http.Request) (*http.Response, error) {
	var wrote atomic.Bool
	trace := &httptrace.ClientTrace{WroteHeaders: func() { wrote.Store(true) }}
	res, err := c.http.Do(req.WithContext(httptrace.WithClientTrace(req.Context(), trace)))
	switch {
	case err == nil:
		res.Body = struct {
			io.Reader
			io.Closer
		}{io.LimitReader(res.Body, maxAnswer), res.Body}
		return res, nil
	case !wrote.Load():
		return nil, ErrNotSent
	case req.Context().Err() != nil:
		return nil, req.Context().Err()
	}
	return nil, errors.New("the connection ended before the answer")
}

// REST makes the requests of a service whose API is JSON over HTTP.
type REST struct {
	*Client
	Base    string // URL without a slash at its end
	Service string // its name, for errors
	Account Account
	// Header returns the headers of a request, among them the token.
	Header func() (http.Header, error)
	// Refusal returns the service's own words about a refused request, or "".
	Refusal func(answer []byte) string
}

// Call makes a request with in as its body (nil: none) and decodes the answer into out (nil: it is
// not read). With a file it is a form, in which in is the part payload_json. The errors are those of
// [Channel].
func (r *REST) Call(ctx context.Context, method, path string, in any, file *File, out any) error {
	var body bytes.Buffer
	kind := "application/json"
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return err
		}
		if body = *bytes.NewBuffer(data); file != nil {
			body = bytes.Buffer{}
			if kind, err = form(&body, data, file); err != nil {
				return err
			}
		}
	}
	return r.send(ctx, method, path, kind, &body, out)
}

func form(to io.Writer, payload []byte, file *File) (kind string, err error) {
	w := multipart.NewWriter(to)
	for _, part := range []struct {
		disposition, kind string
		data              []byte
	}{
		{`form-data; name="payload_json"`, "application/json", payload},
		{`form-data; name="files[0]"; filename=` + strconv.QuoteToASCII(file.Name), "application/octet-stream", file.Data},
	} {
		p, err := w.CreatePart(textproto.MIMEHeader{"Content-Disposition": {part.disposition}, "Content-Type": {part.kind}})
		if err == nil {
			_, err = p.Write(part.data)
		}
		if err != nil {
			return "", err
		}
	}
	return w.FormDataContentType(), w.Close()
}

// Upload makes a request with a body of a type of its own.
func (r *REST) Upload(ctx context.Context, method, path, kind string, data []byte, out any) error {
	return r.send(ctx, method, path, kind, bytes.NewBuffer(data), out)
}

func (r *REST) send(ctx context.Context, method, path, kind string, body *bytes.Buffer, out any) error {
	req, err := http.NewRequestWithContext(ctx, method, r.Base+path, body)
	if err != nil {
		return capability.Errorf(capability.CodeInvalidInput, r.Account.Kind, "the URL of the account, or an id, cannot be used")
	}
	header, err := r.Header()
	if err != nil {
		return capability.Wrap(capability.CodeUnauthenticated, r.Account.Kind, "the token of "+r.Account.String()+" is not stored", err)
	}
	if req.Header = header; body.Len() > 0 {
		req.Header.Set("Content-Type", kind)
	}
	res, err := r.Do(req)
	if errors.Is(err, ErrNotSent) {
		return capability.Errorf(capability.CodeUnavailable, r.Account.Kind, "%s cannot be reached", r.Service)
	}
	if err != nil {
		return DeliveryUnknown(err)
	}
	defer res.Body.Close()
	answer, err := io.ReadAll(res.Body)
	switch {
	case res.StatusCode/100 == 2 && err == nil:
		if out == nil {
			return nil
		}
		if err := json.Unmarshal(answer, out); err != nil {
			return DeliveryUnknown(errors.New("the answer cannot be read"))
		}
		return nil
	case res.StatusCode/100 == 2 || res.StatusCode >= 500:
		return DeliveryUnknown(errors.New("the service answered " + res.Status))
	case res.StatusCode == http.StatusTooManyRequests:
		return r.limited(res.Header, answer)
	case res.StatusCode == http.StatusUnauthorized:
		return r.Unauthorized()
	}
	said := ""
	if r.Refusal != nil {
		said = r.Refusal(answer)
	}
	if said == "" {
		said = "it answered " + res.Status
	}
	return capability.Errorf(capability.CodeFailed, r.Account.Kind, "%s refused the request: %.300s", r.Service, said).
		With("refused_by_service", "")
}

// Unauthorized returns the error for a refused token.
func (r *REST) Unauthorized() error {
	return capability.Errorf(capability.CodeUnauthenticated, r.Account.Kind, "%s refuses the token of %s", r.Service, r.Account.Ref).
		With("token_refused", "make a new one, and store it with: junctor secrets set "+r.Account.Secret)
}

// limited returns the error for a rate limit: of the header Retry-After, or the members retry_after
// (seconds) or retry_after_ms of the answer.
func (r *REST) limited(h http.Header, answer []byte) error {
	var said struct {
		Seconds float64 `json:"retry_after"`
		Millis  float64 `json:"retry_after_ms"`
	}
	_ = json.Unmarshal(answer, &said) // the header counts then
	wait := time.Duration(max(said.Seconds*1000, said.Millis)) * time.Millisecond
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	e := capability.Errorf(capability.CodeOverloaded, r.Account.Kind, "%s takes no more messages now", r.Service)
	e.RetryAfter = min(max(wait, 100*time.Millisecond), time.Hour)
	return e
}

// Reading returns the error of a request that only reads: a lost answer has no consequence.
func (r *REST) Reading(err error) error {
	if e := capability.AsError(err); e != nil && e.Reason == ReasonDeliveryUnknown {
		return capability.Errorf(capability.CodeUnavailable, r.Account.Kind, "the connection to %s was lost", r.Service)
	}
	return err
}
