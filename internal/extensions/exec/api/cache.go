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

// cache holds answers to GET and HEAD. The key includes extension, version, user,
// policy and credentials, so that no answer is shared between them.
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
	fresh  time.Time // until then it is used without a request
	used   int64
}

// cacheKey returns the key of a call, or "" if its answer must not be cached.
func cacheKey(req Request, u *url.URL) string {
	if req.NoCache || req.Method != http.MethodGet && req.Method != http.MethodHead || len(req.Body) > 0 {
		return ""
	}
	h := sha256.New()
	part := func(format string, args ...any) { // with its length, so that different lists never hash the same text
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

// get returns a copy of the entry and marks it as used; nil if not found. The entry may be stale.
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

// answer returns the stored Result, with cached and age_ms in its metadata.
func (s *stored) answer(now time.Time) Result {
	r := s.result
	r.Metadata = maps.Clone(r.Metadata)
	r.Metadata["cached"], r.Metadata["age_ms"] = true, now.Sub(s.saved).Milliseconds()
	return r
}

// put stores an answer with status 200 if its headers and ttl allow that, and it is
// neither truncated nor larger than a quarter of the cache. It evicts the entries that
// were not used for the longest time.
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
	kept.Metadata = maps.Clone(kept.Metadata) // the caller may change its map
	c.entries[key] = &stored{kept, a.header.Get("Etag"), now, now.Add(fresh), c.uses}
	c.bytes += len(a.Output)
}

// renew extends the lifetime of a stored answer after the service returned 304.
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

// freshness returns how long an answer is fresh, by its headers or else by ttl, and whether it may
// be stored. A stale answer is stored if it has an ETag, so that it can be revalidated.
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
