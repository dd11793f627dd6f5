// Package webpush sends notifications to browsers by the Push API: messages are encrypted for
// the browser (RFC 8291) and signed with the key of this server (RFC 8292). It isolates the
// library that does both. A notification names an approval or a task and decides nothing.
package webpush

import (
	"context"
	"crypto/ecdh"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"io/fs"
	"log/slog"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/bus"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/hostfs"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

const authBytes = 16 // of the secret of a subscription (RFC 8291)

// Policy finds tokens and approvals.
type Policy interface {
	StandingToken(id string) (policy.Token, bool)
	Approval(ctx context.Context, id string) (policy.Approval, error)
	Approvals(ctx context.Context, state policy.ApprovalState, after string, limit int) ([]policy.Approval, error)
}

// Log stores audit records.
type Log interface {
	Append(ctx context.Context, r audit.Record, d audit.Durability) (audit.Receipt, error)
}

// Config holds the dependencies of a Service. All fields but Addresses are required.
type Config struct {
	Dir string // holds the key and the subscriptions; must exist
	// Contact is the https URL by which push services reach those who are responsible.
	Contact string
	Policy  Policy
	Bus     *bus.Bus
	Log     Log
	Logger  *slog.Logger
	// Addresses are ranges outside the public ones that may be dialled. Only tests set them.
	Addresses []netip.Prefix
}

// Subscription is one browser that receives notifications. It ends with its token.
type Subscription struct {
	ID        string    `json:"id"` // "psh_" + 24 hex of the digest of Endpoint
	Principal string    `json:"principal"`
	Token     string    `json:"token"`             // id of the token whose principal this is
	Session   string    `json:"session,omitempty"` // of the console, or "" if a token made it
	Name      string    `json:"name"`
	Created   time.Time `json:"created"`
	Endpoint  string    `json:"endpoint"`
	P256dh    string    `json:"p256dh"` // both keys in base64url without padding
	Auth      string    `json:"auth"`
}

// stored is the content of push.json. Subscriptions are valid for one key.
type stored struct {
	Key           string         `json:"key"`
	Subscriptions []Subscription `json:"subscriptions"`
}

// Service stores subscriptions and sends notifications. It is safe for concurrent use.
type Service struct {
	cfg    Config
	client *http.Client
	pause  func(ctx context.Context, d time.Duration) bool

	mu              sync.Mutex
	private, public string // the key, in base64url; "" until it is first needed
	list            []Subscription
	queues          map[string]*queue // by id of the subscription
	fault           string            // why the last notification was refused for good, or ""
	work            sync.WaitGroup
}

// New reads the subscriptions. It drops them if the key that they were made for is gone.
func New(cfg Config) (*Service, error) {
	s := &Service{cfg: cfg, client: egress.NewClient(cfg.Addresses, attemptTimeout), pause: pause, queues: make(map[string]*queue)}
	var was stored
	if err := hostfs.ReadJSON(s.file(), &was); err != nil {
		return nil, capability.Wrap(capability.CodeFailed, "console.push", "the file "+s.file()+" cannot be read", err).
			With("subscriptions_unreadable", "remove it; notifications are switched on again in each browser")
	}
	if was.Key == "" {
		return s, nil // the file does not exist
	}
	if err := s.loadKey(); err != nil {
		return nil, err
	}
	if was.Key == s.public {
		s.list = was.Subscriptions
	} else {
		cfg.Logger.Warn("notifications are off in all browsers, because their key has changed", "subscriptions", len(was.Subscriptions))
	}
	return s, nil
}

func (s *Service) file() string { return filepath.Join(s.cfg.Dir, "push.json") }

// loadKey reads the key, or creates it. The caller holds mu, or is New.
func (s *Service) loadKey() error {
	if s.public != "" {
		return nil
	}
	path := filepath.Join(s.cfg.Dir, "push.key")
	raw, err := os.ReadFile(path)
	var key *ecdh.PrivateKey
	switch {
	case errors.Is(err, fs.ErrNotExist):
		if key, err = ecdh.P256().GenerateKey(rand.Reader); err == nil {
			err = hostfs.WriteFile(path, []byte(encode(key.Bytes())+"\n"))
		}
	case err == nil:
		if raw, err = decode(string(raw[:max(0, len(raw)-1)])); err == nil {
			key, err = ecdh.P256().NewPrivateKey(raw)
		}
	}
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "console.push", "the key "+path+" cannot be used", err).
			With("subscriptions_unreadable", "remove it; notifications are switched on again in each browser")
	}
	s.private, s.public = encode(key.Bytes()), encode(key.PublicKey().Bytes())
	return nil
}

// PublicKey returns the key that browsers subscribe with, in base64url.
func (s *Service) PublicKey() (string, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.loadKey()
	return s.public, err
}

// Add stores a subscription, or replaces the one of the same browser. ID, Name and Created of
// made are set here. Errors: invalid_input, reason subscription_refused; overloaded, reason
// subscription_limit.
func (s *Service) Add(ctx context.Context, made Subscription) (Subscription, error) {
	if err := s.check(made); err != nil {
		return Subscription{}, err
	}
	sum := sha256.Sum256([]byte(made.Endpoint))
	made.ID, made.Created = "psh_"+hex.EncodeToString(sum[:12]), time.Now().UTC().Truncate(time.Second)
	made.Name = text.Visible(text.Line(made.Name, maxName))
	isNew, err := s.put(&made)
	if err == nil && isNew {
		s.record(ctx, audit.PushSubscribed, made, "")
	}
	return made, err
}

// put stores a subscription and reports whether its principal did not have it.
func (s *Service) put(made *Subscription) (isNew bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.loadKey(); err != nil {
		return false, err
	}
	own, isNew := 0, true
	list := slices.DeleteFunc(slices.Clone(s.list), func(one Subscription) bool {
		if one.Principal == made.Principal && one.ID == made.ID {
			isNew, made.Created = false, one.Created
		} else if one.Principal == made.Principal {
			own++
		}
		return one.ID == made.ID
	})
	if own >= maxPerPrincipal || len(list) >= maxSubscriptions {
		return false, capability.Errorf(capability.CodeOverloaded, "console.push",
			"%d browsers of one principal and %d in all receive notifications at most", maxPerPrincipal, maxSubscriptions).
			With("subscription_limit", "remove one on the page Notifications of the console")
	}
	return isNew, s.save(append(list, *made))
}

// check returns an error unless the browser's part of a subscription is well-formed. Names are
// checked when they are dialled.
func (s *Service) check(made Subscription) error {
	bad := func(why string) error {
		return capability.Errorf(capability.CodeInvalidInput, "console.push", "the subscription cannot be used: %s", why).
			With("subscription_refused", "")
	}
	u, err := url.Parse(made.Endpoint)
	if err != nil || len(made.Endpoint) > maxEndpoint || u.Scheme != "https" || u.Hostname() == "" || u.User != nil || u.Fragment != "" {
		return bad("its endpoint is not an https URL of at most 1,024 bytes")
	}
	if ip, err := netip.ParseAddr(u.Hostname()); err == nil && !ip.Unmap().IsGlobalUnicast() || ip.Unmap().IsPrivate() {
		if !slices.ContainsFunc(s.cfg.Addresses, func(r netip.Prefix) bool { return r.Contains(ip.Unmap()) }) {
			return bad("its endpoint is in a private network")
		}
	}
	point, err := decode(made.P256dh)
	if err == nil {
		_, err = ecdh.P256().NewPublicKey(point)
	}
	auth, authErr := decode(made.Auth)
	// The encoding that was sent is stored, so it is the canonical one, without line breaks.
	if err != nil || authErr != nil || len(auth) != authBytes || encode(point) != made.P256dh || encode(auth) != made.Auth {
		return bad("its keys are not a point of P-256 and 16 bytes, in base64url")
	}
	return nil
}

// List returns the subscriptions of a principal, oldest first.
func (s *Service) List(principal string) (list []Subscription) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, one := range s.list {
		if one.Principal == principal {
			list = append(list, one)
		}
	}
	return list
}

// Remove ends a subscription of a principal. The error is not_found.
func (s *Service) Remove(ctx context.Context, principal, id string) error {
	n, err := s.remove(ctx, "", func(one Subscription) bool { return one.ID == id && one.Principal == principal })
	if err == nil && n == 0 {
		err = capability.Errorf(capability.CodeNotFound, "console.push", "you do not have the subscription %s", text.Line(id, maxName))
	}
	return err
}

// EndSession ends the subscriptions that a session of the console made or renewed last, because
// its browser was signed out.
func (s *Service) EndSession(ctx context.Context, session string) {
	_, err := s.remove(ctx, "the browser was signed out", func(one Subscription) bool { return one.Session == session })
	if err != nil {
		s.cfg.Logger.Error("notifications of a browser that was signed out are still on", "session", session, "err", err)
	}
}

// remove ends the subscriptions that match and returns how many.
func (s *Service) remove(ctx context.Context, cause string, match func(one Subscription) bool) (n int, err error) {
	var ended []Subscription
	s.mu.Lock()
	list := slices.DeleteFunc(slices.Clone(s.list), func(one Subscription) bool {
		if match(one) {
			ended = append(ended, one)
		}
		return match(one)
	})
	if len(ended) > 0 {
		err = s.save(list)
	}
	for _, one := range ended {
		if q := s.queues[one.ID]; err == nil && q != nil && !q.busy {
			delete(s.queues, one.ID)
		}
	}
	s.mu.Unlock()
	if err != nil {
		return 0, err
	}
	for _, one := range ended {
		s.record(ctx, audit.PushUnsubscribed, one, cause)
	}
	return len(ended), nil
}

// save replaces the list, in the file first. The caller holds mu.
func (s *Service) save(list []Subscription) error {
	if err := hostfs.WriteJSON(s.file(), stored{Key: s.public, Subscriptions: list}); err != nil {
		return capability.Wrap(capability.CodeFailed, "console.push", "the subscriptions cannot be saved", err)
	}
	s.list = list
	return nil
}

func (s *Service) record(ctx context.Context, event audit.Event, one Subscription, cause string) {
	attrs := []audit.Attr{{Key: "subscription", Value: one.ID}, {Key: "browser", Value: one.Name}}
	if cause != "" {
		attrs = append(attrs, audit.Attr{Key: "cause", Value: cause})
	}
	_, err := s.cfg.Log.Append(context.WithoutCancel(ctx), audit.Record{
		Logger: "console", Event: event, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{Surface: "console", Principal: audit.Principal{ID: one.Principal}, Attrs: attrs},
	}, audit.Written)
	if err != nil {
		s.cfg.Logger.Error("subscription not recorded", "event", event, "err", err)
	}
}

// Checks reports notifications that a push service refused. It reports nothing before one was.
func (s *Service) Checks() []httpapi.Check {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fault == "" || len(s.list) == 0 {
		return nil
	}
	return []httpapi.Check{{
		Name: "notifications", Detail: s.fault,
		Remedy: "see that this machine reaches the push service and that its clock is right; or switch notifications off and on in the browser",
	}}
}

func encode(b []byte) string { return base64.RawURLEncoding.EncodeToString(b) }

func decode(s string) ([]byte, error) { return base64.RawURLEncoding.Strict().DecodeString(s) }
