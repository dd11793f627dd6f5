package restserve

import (
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/core/catalog"
	"github.com/junctor-run/junctor/internal/core/policy"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
)

func (s *Surface) auditQuery(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	q, denied, err := ParseQuery(r.URL.Query())
	if err != nil {
		return err
	}
	name, snap := q.Capability, s.Catalog.Snapshot()
	q.Capability = s.recordedAs(name)
	find := s.Log.Query
	if denied {
		find = s.Log.Denied
	}
	records, err := find(r.Context(), q)
	if err != nil {
		return err
	}
	if len(records) == 0 && q.Capability != name {
		if err := s.checkRecorded(r.Context(), name, q.Capability, snap); err != nil {
			return err
		}
	}
	out := make([]jsonx.Raw, len(records))
	for i, rec := range records {
		out[i] = jsonx.Raw(rec)
	}
	return httpapi.Answer(w, map[string]any{"records": out}, nil)
}

// recordedAs returns the action that records of a tool have, and a capability's id or an unknown name as
// it is. The server of SERVER/TOOL may be gone.
func (s *Surface) recordedAs(name string) string {
	if strings.Contains(name, "#") {
		return name
	}
	if found := s.find(name); len(found) > 0 {
		return string(found[0].Action)
	}
	return RecordedAs(name)
}

// RecordedAs returns the action of SERVER/TOOL without a catalog, and other names as they are.
func RecordedAs(name string) string {
	if server, tool, ok := strings.Cut(name, "/"); ok && !strings.Contains(name, "#") {
		return "ext.mcp." + server + "." + tool
	}
	return name
}

// checkRecorded returns an error with the nearest names if neither a record nor the catalog has a
// tool, so that a misspelt name does not read like a tool that was never used.
func (s *Surface) checkRecorded(ctx context.Context, name, recorded string, snap *catalog.Snapshot) error {
	for e := range snap.Entries() {
		if string(e.Action) == recorded || string(e.ID) == recorded {
			return nil
		}
	}
	list, err := s.Log.Query(ctx, audit.Query{Capability: recorded, Limit: 1})
	if err != nil || len(list) > 0 {
		return err
	}
	return policy.UnknownTarget("audit.query", name, snap)
}

// usage answers with numbers of calls: since, until, agent, by (keys with commas between them; agent
// and tool if it is missing) and limit.
func (s *Surface) usage(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	v := r.URL.Query()
	q := audit.UsageQuery{User: v.Get("agent"), By: []audit.UsageKey{audit.ByUser, audit.ByCapability}}
	if v.Has("by") {
		q.By = nil
		for key := range strings.SplitSeq(v.Get("by"), ",") {
			if key != "" {
				q.By = append(q.By, audit.UsageKey(key))
			}
		}
	}
	for key, to := range map[string]*time.Time{"since": &q.Since, "until": &q.Until} {
		var ok bool
		if *to, ok = parseTime(v.Get(key)); v.Has(key) && !ok {
			return capability.Errorf(capability.CodeInvalidInput, "usage", "%s: %.40q is not a time", key, v.Get(key)).
				With("bad_query", "write 2026-01-02T15:04:05Z, or 24h for the time since then")
		}
	}
	var err error
	if q.Limit, err = httpapi.Number(r, "limit", 100, 1, MaxUsage); err != nil {
		return err
	}
	list, err := s.Log.Usage(r.Context(), q)
	if err != nil {
		return err
	}
	return httpapi.Answer(w, map[string]any{"usage": append([]audit.Usage{}, list...)}, nil)
}

// ParseQuery parses the query parameters of an audit query. An unknown one is invalid_input.
func ParseQuery(v url.Values) (q audit.Query, denied bool, err error) {
	bad := func(key, want string) error {
		return capability.Errorf(capability.CodeInvalidInput, "audit.query", "%s: %q is not %s", key, v.Get(key), want)
	}
	for key := range v {
		val := v.Get(key)
		switch key {
		case "ext":
			q.Extension = val
		case "event":
			q.Event = audit.Event(val)
		case "session":
			q.Session = val
		case "user":
			q.User = val
		case "run":
			q.Run = val
		case "cap":
			q.Capability = val
		case "provider":
			q.Provider = val
		case "parent":
			q.Parent = val
		case "approval":
			q.Approval = val
		case "level":
			q.Level = audit.Level(val)
			if !slices.Contains([]audit.Level{audit.Debug, audit.Info, audit.Warning, audit.Error}, q.Level) {
				return q, false, bad(key, "a level; use DEBUG, INFO, WARNING or ERROR")
			}
		case "denied":
			if denied, err = strconv.ParseBool(val); err != nil {
				return q, false, bad(key, "true or false")
			}
		case "since", "until":
			t, ok := parseTime(val)
			if !ok {
				return q, false, bad(key, "a time; write 2026-01-02T15:04:05Z or 15m for fifteen minutes ago")
			}
			if key == "since" {
				q.Since = t
			} else {
				q.Until = t
			}
		case "success":
			b, err := strconv.ParseBool(val)
			if err != nil {
				return q, false, bad(key, "true or false")
			}
			q.Success = &b
		case "before":
			if q.Before, err = strconv.ParseUint(val, 10, 64); err != nil {
				return q, false, bad(key, "a record number")
			}
		case "limit":
			if q.Limit, err = strconv.Atoi(val); err != nil || q.Limit < 1 || q.Limit > MaxRecords {
				return q, false, bad(key, "a number from 1 to 10000")
			}
		default:
			return q, false, capability.Errorf(capability.CodeInvalidInput, "audit.query",
				"%q is not a filter; use ext, event, session, user, run, cap, provider, parent, approval, level, since, until, success, denied, before or limit", key)
		}
	}
	return q, denied, nil
}

// parseTime parses a time (RFC 3339), or a duration as that long ago.
func parseTime(s string) (time.Time, bool) {
	if t, err := time.Parse(time.RFC3339, s); err == nil {
		return t, true
	}
	if d, err := time.ParseDuration(s); err == nil {
		return time.Now().Add(-d), true
	}
	return time.Time{}, false
}

// arguments answers with the kept arguments of a call, and records who has read them.
func (s *Surface) arguments(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	kept, err := s.Log.Arguments(r.Context(), who, r.PathValue("run"))
	return httpapi.Answer(w, kept, err)
}

func (s *Surface) removeArguments(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	run := r.PathValue("run")
	return httpapi.Answer(w, map[string]any{"removed": run}, s.Log.RemoveArguments(r.Context(), who, run))
}

// auditVerify verifies the hash chain of the audit log and appends a record of the caller
// and the result.
func (s *Surface) auditVerify(w http.ResponseWriter, r *http.Request, who capability.Principal) error {
	report, err := s.Log.Verify(r.Context())
	if err != nil {
		return err
	}
	rec := audit.Record{
		Logger: "restserve", Event: audit.AuditVerified, User: who.ID, Success: audit.OutcomeSuccess,
		Metadata: audit.Metadata{
			Surface: "http", Principal: audit.Principal{ID: who.ID, Role: who.Role},
			Attrs: []audit.Attr{{Key: "records", Value: strconv.FormatUint(report.Records, 10)}},
		},
	}
	if report.FirstBad != nil {
		rec.Level, rec.Success, rec.Error = audit.Error, audit.OutcomeFailure, "the chain is broken: "+report.FirstBad.Reason
		rec.Metadata.Attrs = append(rec.Metadata.Attrs, audit.Attr{Key: "first_bad", Value: strconv.FormatUint(report.FirstBad.Seq, 10)})
	}
	// The check must also work if the log cannot be written.
	_, _ = s.Log.Append(context.WithoutCancel(r.Context()), rec, audit.Synced)
	return httpapi.Answer(w, report, nil)
}

// auditTail streams the records from a number on, until the client disconnects or the
// server begins to stop.
func (s *Surface) auditTail(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	var from uint64
	if v := r.URL.Query().Get("from"); v != "" {
		n, err := strconv.ParseUint(v, 10, 64)
		if err != nil {
			return capability.Errorf(capability.CodeInvalidInput, "audit.tail", "from: %q is not a record number", v)
		}
		from = n
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	go func() {
		select {
		case <-s.Stopping:
			cancel()
		case <-ctx.Done():
		}
	}()
	out := httpapi.NewStream(w, r)
	for rec, err := range s.Log.Tail(ctx, from) {
		if err != nil || out.Send("", "record", rec) != nil {
			return nil
		}
	}
	return nil
}

// events streams the live feed. Last-Event-ID, or the parameter after, resumes it; if
// events in between are no longer stored, an event of type "resync" reports that.
func (s *Surface) events(w http.ResponseWriter, r *http.Request, _ capability.Principal) error {
	after, err := lastEvent(r)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	out := httpapi.NewStream(w, r)
	feed := make(chan Event)
	go func() {
		defer close(feed)
		for ev := range s.Events(ctx, after) {
			select {
			case feed <- ev:
			case <-ctx.Done():
				return
			}
		}
	}()
	beat := time.NewTicker(15 * time.Second)
	defer beat.Stop()
	for {
		select {
		case ev, ok := <-feed:
			if !ok {
				return nil
			}
			data, err := jsonx.Answer(ev)
			if err != nil || out.Send(strconv.FormatUint(ev.ID, 10), ev.Type, data) != nil {
				return nil
			}
		case <-beat.C:
			if out.Beat() != nil {
				return nil
			}
		}
	}
}

func lastEvent(r *http.Request) (uint64, error) {
	v := r.Header.Get("Last-Event-ID")
	if v == "" {
		v = r.URL.Query().Get("after")
	}
	if v == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, capability.Errorf(capability.CodeInvalidInput, "events", "Last-Event-ID: %q is not a number", v)
	}
	return n, nil
}
