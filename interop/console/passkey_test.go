package console

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

func TestPasskeysConfirmDecisionsInABrowser(t *testing.T) {
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
	codeFile := filepath.Join(t.TempDir(), "code")
	driver := exec.CommandContext(ctx, "node", "passkey.mjs", url, link.URL, approval, codeFile, os.Getenv("PICTURES"))
	driver.Stderr = os.Stderr
	lines, err := driver.StdoutPipe()
	if err == nil {
		err = driver.Start()
	}
	if err != nil {
		t.Fatalf("the browser's script: %v, want it to start", err)
	}
	var seen struct {
		Violations, Errors, Axe    []string
		Added, Approved, CodeAgain bool
		Digits, Credentials        int
		Refused                    string
	}
	open := func() (list []struct{ Code, What string }) {
		t.Helper()
		var got struct {
			Verifications []struct{ Code, What string }
		}
		if err := admin.Do(ctx, http.MethodGet, "/api/v1/console/verifications", nil, &got); err != nil {
			t.Fatalf("GET /api/v1/console/verifications: %v, want a list", err)
		}
		return got.Verifications
	}
	var keys struct {
		Passkeys []struct{ ID, Name, Principal, Used string }
	}
	scan := bufio.NewScanner(lines)
	for scan.Scan() {
		asked, answer := scan.Text(), ""
		switch asked {
		case "code":
			list := open()
			if len(list) != 1 || list[0].What != "add a passkey" {
				t.Fatalf("got %+v, want one code, for adding a passkey", list)
			}
			answer = list[0].Code
		case "pending":
			if list := open(); len(list) != 0 {
				t.Errorf("got %+v, want no code for a decision that a passkey confirms", list)
			}
			var one struct{ Approval struct{ State string } }
			if err := admin.Do(ctx, http.MethodGet, "/api/v1/approvals/"+approval, nil, &one); err != nil || one.Approval.State != "pending" {
				t.Errorf("after a key of another: the approval is %q, %v, want pending", one.Approval.State, err)
			}
		case "remove":
			if err := admin.Do(ctx, http.MethodGet, "/api/v1/console/passkeys", nil, &keys); err != nil || len(keys.Passkeys) != 1 ||
				keys.Passkeys[0].Name != "laptop" || keys.Passkeys[0].Principal != "admin:local-admin" || keys.Passkeys[0].Used == "" {
				t.Fatalf("got %+v, %v, want one passkey that was used", keys, err)
			}
			cmd := exec.CommandContext(ctx, program, "console", "passkeys", "--remove", keys.Passkeys[0].ID, "--home", home)
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Fatalf("junctor console passkeys --remove: %v\n%s", err, out)
			}
		default:
			if err := json.Unmarshal(scan.Bytes(), &seen); err != nil {
				t.Errorf("the browser's answer: %v in %.300s, want one JSON object", err, asked)
			}
			continue
		}
		// Written beside and renamed, so that the browser never reads half of it.
		file := codeFile + "." + asked
		if err := errors.Join(os.WriteFile(file+".new", []byte(answer), 0o600), os.Rename(file+".new", file)); err != nil {
			t.Fatalf("answering the browser's script: %v", err)
		}
	}
	if err := driver.Wait(); err != nil {
		t.Fatalf("the browser's script: %v, want no error", err)
	}
	if all := slices.Concat(seen.Violations, seen.Errors, seen.Axe); len(all) > 0 {
		t.Errorf("violations, errors and findings of accessibility: got %q, want none", all)
	}
	if !seen.Added || !seen.Approved || !seen.CodeAgain || seen.Digits != 0 || seen.Credentials != 1 || seen.Refused == "" {
		t.Errorf("got %+v, want a passkey that is added, refused from another authenticator, confirms, and is removed", seen)
	}
	if data, err := os.ReadFile(filepath.Join(home, "console", "passkeys.json")); err != nil || strings.TrimSpace(string(data)) != "[]" {
		t.Errorf("the file of passkeys is %q, %v, want an empty list", data, err)
	}
	var records struct{ Records []struct{ Event string } }
	if err := admin.Do(ctx, http.MethodGet, "/api/v1/audit?event=passkey_added", nil, &records); err != nil || len(records.Records) != 1 {
		t.Errorf("got %+v, %v, want one record of an added passkey", records, err)
	}
}
