package channels

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync/atomic"
)

const maxAnswer = 16 << 20 // bytes of a service's answer

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
