package api

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
)

// Bounds of what is kept of answers.
const (
	maxStored      = 1024
	maxStoredBytes = 32 << 20
	maxCacheTTL    = 24 * time.Hour
)

// cache keeps answers of calls that only read, each for the one who asked: the
// key holds extension, version, user, policy and credentials.
type cache struct {
	mu      sync.Mutex
	entries map[string]*stored
	bytes   int
	uses    int64
}

type stored struct {
	result Result
	etag   string
	saved  time.Time
	fresh  time.Time // until then it need not be asked for again
	used   int64
}

// cacheKey is "" for calls whose answers are not kept.
func cacheKey(req Request, u *url.URL) string {
	if req.NoCache || req.Method != http.MethodGet && req.Method != http.MethodHead || len(req.Body) > 0 {
		return ""
	}
	h := sha256.New()
	part := func(format string, args ...any) { // with its length, so that no two lists of parts are one text
		s := fmt.Sprintf(format, args...)
		fmt.Fprintf(h, "%d:%s", len(s), s)
	}
	part("%s", req.Extension)
	part("%s", req.Version)
	part("%s", req.User)
	part("%s %s %t", req.Method, u, req.Raw)
	part("%q %q %v", req.Policy.Allow, req.Policy.Deny, req.Policy.Addresses)
	for _, name := range slices.Sorted(maps.Keys(req.Header)) {
		part("%s %q", strings.ToLower(name), req.Header[name])
	}
	if a := req.Auth; a != nil {
		part("%s %s %s %s", a.Kind, a.Name, a.User, a.Secret.Reveal())
	}
	return hex.EncodeToString(h.Sum(nil))
}

func (c *cache) get(key string) *stored {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.entries[key]
	if s == nil {
		return nil
	}
	c.uses++
	s.used = c.uses
	out := *s
	return &out
}

// answer is the stored one as it is handed out.
func (s *stored) answer(now time.Time) Result {
	r := s.result
	r.Metadata = maps.Clone(r.Metadata)
	r.Metadata["cached"], r.Metadata["age_ms"] = true, now.Sub(s.saved).Milliseconds()
	return r
}

// put keeps an answer if its headers and the action allow it.
func (c *cache) put(key string, a answer, ttl time.Duration, now time.Time) {
	fresh, keep := freshness(a.header, ttl)
	if key == "" || !keep || a.Status != http.StatusOK || a.Metadata["truncated"] == true {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.drop(key)
	if len(a.Output) > maxStoredBytes/4 {
		return
	}
	for len(c.entries) >= maxStored || c.bytes+len(a.Output) > maxStoredBytes {
		oldest := ""
		for k, s := range c.entries {
			if oldest == "" || s.used < c.entries[oldest].used {
				oldest = k
			}
		}
		c.drop(oldest)
	}
	c.uses++
	kept := a.Result
	kept.Metadata = maps.Clone(kept.Metadata) // the caller may do with its own what it likes
	c.entries[key] = &stored{kept, a.header.Get("Etag"), now, now.Add(fresh), c.uses}
	c.bytes += len(a.Output)
}

// renew makes a stored answer fresh again that the service says is still right.
func (c *cache) renew(key string, header http.Header, ttl time.Duration, now time.Time) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.entries[key]
	if s == nil {
		return
	}
	if header = header.Clone(); header.Get("Etag") == "" {
		header.Set("Etag", s.etag)
	}
	fresh, keep := freshness(header, ttl)
	if s.fresh = now.Add(fresh); !keep {
		c.drop(key)
	}
}

func (c *cache) drop(key string) {
	if s := c.entries[key]; s != nil {
		c.bytes -= len(s.result.Output)
		delete(c.entries, key)
	}
}

// freshness reads the headers that report whether and for how long an answer may be
// kept; where they are silent, the action's ttl counts. One that is not fresh at
// all is kept if it can be asked for by its tag.
func freshness(h http.Header, ttl time.Duration) (time.Duration, bool) {
	if h.Get("Set-Cookie") != "" || strings.Contains(h.Get("Vary"), "*") {
		return 0, false
	}
	fresh := ttl
	for directive := range strings.SplitSeq(strings.ToLower(strings.Join(h.Values("Cache-Control"), ",")), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(directive), "=")
		switch name {
		case "no-store":
			return 0, false
		case "no-cache":
			return 0, h.Get("Etag") != ""
		case "max-age":
			n, err := strconv.Atoi(strings.Trim(value, `"`))
			if err != nil || n < 0 {
				n = 0
			}
			fresh = time.Duration(min(n, int(maxCacheTTL/time.Second))) * time.Second
		}
	}
	fresh = min(fresh, maxCacheTTL)
	return fresh, fresh > 0 || h.Get("Etag") != ""
}
