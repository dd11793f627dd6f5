package llm

import (
	"bufio"
	"bytes"
	"errors"
	"io"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/protocol/modelwire"
	"github.com/junctor-run/junctor/secret"
)

// transient is a failure that may not recur with another attempt.
type transient struct {
	error
	after time.Duration
}

func (t *transient) Unwrap() error { return t.error }

func asTransient(err error) *transient {
	t, _ := errors.AsType[*transient](err)
	return t
}

func fault(code capability.Code, message, cause, reason string) *capability.Error {
	return capability.Wrap(code, op, message, errors.New(cause)).With(reason, "")
}

// keyLike matches text that looks like a key or a header with one. A service that echoes a
// request must not get a secret into the log.
var keyLike = regexp.MustCompile(`(?i)\b(?:sk-[A-Za-z0-9_-]{8,}|bearer\s+\S+|x-api-key["':=\s]+\S+)`)

// redact returns a service's message without the key and other key-like text, at most 500 bytes.
func redact(message string, key secret.Value) string {
	if !key.Empty() {
		message = strings.ReplaceAll(message, key.Reveal(), key.String())
	}
	return text.ShortenBytes(keyLike.ReplaceAllString(message, key.String()), 500)
}

// refusal returns the error for a response with a status other than 200. If the service requires
// the newer member for the token limit, refusal switches to it and returns a transient error.
func (c *Client) refusal(res *http.Response, key secret.Value) error {
	body, _ := io.ReadAll(io.LimitReader(res.Body, maxErrorBody)) // a part of the body suffices for the cause
	said := strconv.Itoa(res.StatusCode) + ": " + redact(string(body), key)
	switch s := res.StatusCode; {
	case s == http.StatusUnauthorized || s == http.StatusForbidden:
		return fault(capability.CodeUnavailable, "the model service does not accept the key", said, "model_credentials")
	case s == http.StatusNotFound:
		return fault(capability.CodeUnavailable, "the model service does not know the model or the address", said, "model_unknown")
	case s == http.StatusRequestEntityTooLarge:
		return fault(capability.CodeTooLarge, "the texts are too large for the model service", said, "")
	case s == http.StatusTooManyRequests:
		after := delay(res.Header.Get("Retry-After"))
		err := fault(capability.CodeOverloaded, "the model service has too much to do", said, "rate_limited")
		err.RetryAfter = after
		return &transient{err, after}
	case s >= 500:
		return &transient{fault(capability.CodeUnavailable, "the model service is out of order", said, ""), delay(res.Header.Get("Retry-After"))}
	case s == http.StatusBadRequest && c.cfg.Form == modelwire.OpenAIChat && bytes.Contains(body, []byte("max_completion_tokens")) &&
		!c.newTokens.Swap(true):
		return &transient{fault(capability.CodeFailed, "the model service wants the newer form of a request", said, "model_refused"), 0}
	}
	return fault(capability.CodeFailed, "the model service does not want the request", said, "model_refused")
}

// delay parses a Retry-After header in seconds. Dates and invalid values result in 0.
func delay(header string) time.Duration {
	n, err := strconv.Atoi(strings.TrimSpace(header))
	if err != nil || n < 0 || n > 86400 {
		return 0
	}
	return time.Duration(n) * time.Second
}

// readEvents calls each with the data of every server-sent event until each returns stop or an
// error. Errors: output_parse_error for an event that is too long; a transient one if the stream
// breaks.
func readEvents(r io.Reader, each func(data []byte) (stop bool, err error)) error {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(make([]byte, 0, 4096), maxEvent)
	var data []byte
	flush := func() (bool, error) {
		if len(data) == 0 {
			return false, nil
		}
		event := data
		data = nil
		return each(event)
	}
	for scanner.Scan() {
		line := bytes.TrimSuffix(scanner.Bytes(), []byte("\r"))
		if len(line) == 0 {
			if stop, err := flush(); stop || err != nil {
				return err
			}
			continue
		}
		value, is := bytes.CutPrefix(line, []byte("data:"))
		if !is {
			continue // event names repeat in the data; comments only keep the stream open
		}
		if len(data) > 0 {
			data = append(data, '\n')
		}
		if data = append(data, bytes.TrimPrefix(value, []byte(" "))...); len(data) > maxEvent {
			return unreadable(errors.New("an event of the stream is too long"))
		}
	}
	if err := scanner.Err(); errors.Is(err, bufio.ErrTooLong) {
		return unreadable(err)
	} else if err != nil {
		return broken(err.Error())
	}
	_, err := flush()
	return err
}
