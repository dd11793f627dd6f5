package console

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/junctor-run/junctor/capability"
)

func TestNotificationsInABrowser(t *testing.T) {
	program := build(t)
	ctx, cancel := context.WithTimeout(t.Context(), 8*time.Minute)
	defer cancel()
	home := filepath.Join(t.TempDir(), "home")
	url, _ := serve(ctx, t, program, home, "127.0.0.1:0", "JUNCTOR_FS_ROOTS=files="+t.TempDir())
	admin, agent := dial(t, url, home, "admin"), dial(t, url, home, "agent")
	err := agent.Do(ctx, http.MethodPost, "/api/v1/invocations", map[string]any{
		"target": "fs.writeText", "input": map[string]any{"path": "plan.md", "text": "x"},
	}, nil)
	approval, _ := capability.AsError(err).Details["approval"].(string)
	if approval == "" {
		t.Fatalf("got %v, want an approval", err)
	}
	var link struct{ URL string }
	if err := admin.Do(ctx, http.MethodPost, "/api/v1/console/codes", nil, &link); err != nil {
		t.Fatalf("POST /api/v1/console/codes: %v, want a link", err)
	}
	picture := filepath.Join(t.TempDir(), "notifications.png")
	if to := os.Getenv("PICTURES"); to != "" {
		picture = filepath.Join(to, "notifications.png")
	}
	driver := exec.CommandContext(ctx, "node", "push.mjs", url, link.URL, approval, picture)
	driver.Stderr = os.Stderr
	printed, err := driver.Output()
	if err != nil {
		t.Fatalf("the browser's script: %v, want no error", err)
	}
	type notice struct {
		Title, Body, Path string
		Actions           int
	}
	var seen struct {
		Violations, Errors, Axe, Why               []string
		Notices                                    []notice
		Before, On, Wide, Reloaded, Off, SignedOut bool
		Left                                       int
	}
	if err := json.Unmarshal(printed, &seen); err != nil {
		t.Fatalf("the browser's answer: %v in %.300s, want one JSON object", err, printed)
	}
	for name, list := range map[string][]string{
		"violations of the content policy": seen.Violations, "errors of the page": seen.Errors, "serious findings of accessibility": seen.Axe,
	} {
		if len(list) > 0 {
			t.Errorf("%s: got %q, want none", name, list)
		}
	}
	if seen.Before || !seen.On || seen.Wide || !seen.Reloaded || !seen.Off || !seen.SignedOut || len(seen.Why) != 3 {
		t.Errorf("got %+v, want a switch that is off, then on, also after a reload, off again, and three explanations", seen)
	}
	slices.SortFunc(seen.Notices, func(a, b notice) int { return strings.Compare(b.Path, a.Path) })
	want := []notice{
		{Title: "Approval still needed", Body: "agent:local-agent wants to call fs.writeText (write)", Path: "/approvals/" + approval},
		{Title: "x", Body: "y", Path: "/"},
	}
	if !slices.Equal(seen.Notices, want) || seen.Left != 1 {
		t.Errorf("notifications %+v, %d after a click; want %+v, without buttons, and 1", seen.Notices, seen.Left, want)
	}
	var one struct{ Approval struct{ State string } }
	if err := admin.Do(ctx, http.MethodGet, "/api/v1/approvals/"+approval, nil, &one); err != nil || one.Approval.State != "pending" {
		t.Errorf("after the click the approval is %q, %v, want pending", one.Approval.State, err)
	}
	var list struct{ Subscriptions []any }
	if err := admin.Do(ctx, http.MethodGet, "/api/v1/console/push", nil, &list); err != nil || len(list.Subscriptions) != 0 {
		t.Errorf("after the sign-out: %+v, %v, want no subscription", list, err)
	}
}
