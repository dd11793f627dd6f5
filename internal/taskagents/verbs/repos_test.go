package verbs_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/taskagents/verbs"
)

func TestAWorkspaceFromItsCloneToItsPullRequest(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPlaces)
	r.fails(call(""), "PROVISION_WORKSPACE", `{}`, verbs.MissingRepo)
	r.fails(call(""), "FINALIZE_WORKSPACE", `{}`, verbs.NoWorkspace)
	r.fails(call(""), "PROVISION_WORKSPACE", `{"repo":"https://evil.example/a/b"}`, verbs.InvalidRepoDomain)
	r.fails(call(""), "PROVISION_WORKSPACE", `{"repo":"acme/widget","useWorktree":true}`, verbs.MissingParent)
	r.fails(call(""), "PROVISION_WORKSPACE", `{"parentWorkspaceId":"nope"}`, verbs.WorkspaceNotFound)

	_, clone := r.ok(call(""), "clone_repo", `{"repo":"`+r.remote+`","label":"Widget"}`)
	if clone["mode"] != "clone" || clone["baseBranch"] != "trunk" {
		t.Errorf(`%v; want clone["mode"] = "clone", clone["baseBranch"] = "trunk"`, clone)
	}
	// The conversation's workspace is meant, although another one is newer.
	_, tree := r.ok(verbs.Call{By: agent, Session: "other"}, "PROVISION_WORKSPACE",
		`{"useWorktree":true,"parentWorkspaceId":"Widget","branchName":"second"}`)
	if tree["mode"] != "worktree" || tree["parentWorkspaceId"] != clone["workspaceId"] || tree["branch"] != "second" {
		t.Errorf(`%v; want tree["mode"] = "worktree", tree["parentWorkspaceId"] = clone["workspaceId"], tree["branch"] = "second"`,
			tree)
	}
	got, data := r.ok(call(""), "SUBMIT_CHANGES", `{}`)
	if data["workspaceId"] != clone["workspaceId"] || !strings.Contains(got.Text, "no changes") || data["pull"] != nil {
		t.Errorf(`%+v; want data["workspaceId"] = clone["workspaceId"], got.Text with "no changes", data["pull"] = nil`, got)
	}
	r.write(clone["path"].(string)+"/new.txt", "new\n")
	got, data = r.ok(call(""), "COMMIT_AND_PR", `{"commitMessage":"Add a file","draft":true}`)
	pull, _ := data["pull"].(map[string]any)
	if data["commit"] == nil || pull["draft"] != true || data["stat"].(map[string]any)["files"] != 1.0 || len(data["steps"].([]any)) != 3 {
		t.Errorf(`%+v; want data["commit"] not nil, pull["draft"] = true, data["stat"].(map[string]any)["files"] = 1.0, `+
			`len(data["steps"].([]any)) = 3`, got)
	}
	// What looks like a credential stops it; the reason stays beside the one code.
	r.write(tree["path"].(string)+"/key.txt", "ghp_"+strings.Repeat("a1B2", 9)+"\n")
	got, data = r.fails(call(""), "FINALIZE_WORKSPACE", `{"workspaceId":"`+tree["workspaceId"].(string)+`","skipPR":true}`,
		verbs.FinalizeFailed)
	if !strings.Contains(r.encoded(data), "failed") || strings.Contains(got.Text, "ghp_a1") {
		t.Errorf(`%+v; want r.encoded(data) with "failed", got.Text without "ghp_a1"`, got)
	}
	r.fails(call(""), "FINALIZE_WORKSPACE", `{"workspaceId":"nope"}`, verbs.WorkspaceNotFound)
	if _, err := os.Stat(tree["path"].(string)); err != nil {
		t.Error(err)
	}
}

func (r *rig) encoded(v any) string {
	r.Helper()
	return r.object(map[string]any{"v": v})["v"].(map[string]any)["steps"].([]any)[0].(map[string]any)["outcome"].(string)
}

func TestIssues(t *testing.T) {
	t.Parallel()
	r := newRig(t, withPlaces)
	const repo = `"repo":"acme/widget"`
	for params, want := range map[string]verbs.Code{
		`{}`: verbs.MissingRepo, `{` + repo + `,"operation":"explode"}`: verbs.UnknownOperation,
		`{` + repo + `,"operation":"create"}`:                     verbs.MissingTitle,
		`{` + repo + `,"operation":"close"}`:                      verbs.MissingIssueNumber,
		`{` + repo + `,"operation":"comment","issueNumber":1}`:    verbs.MissingParams,
		`{` + repo + `,"operation":"add_labels","issueNumber":1}`: verbs.MissingParams, `{` + repo +
			`,"operation":"update","issueNumber":1}`: verbs.MissingParams,
		`{"repo":"https://evil.example/a/b"}`: verbs.InvalidRepoDomain, `{` + repo + `,"operation":"get","issueNumber":7}`: "ISSUE_NOT_FOUND",
	} {
		r.fails(verbs.Call{By: agent}, "MANAGE_ISSUES", params, want)
	}
	r.ok(call(""), "CREATE_ISSUE", `{`+repo+`,"title":"It crashes","body":"1. start it\n2. look","labels":"bug, urgent"}`)
	// A list is an issue each, here in the conversation's repository.
	got, data := r.ok(call("create issues:\n- no docs\n- slow start\n  on old disks"), "MANAGE_ISSUES", `{"operation":"create"}`)
	if len(data["issues"].([]any)) != 2 || !strings.HasPrefix(got.Text, "Created 2 issues:\n- #2 no docs (open)") ||
		r.github.issues[2]["title"] != "slow start" || !strings.Contains(r.github.issues[2]["body"].(string), "on old disks") {
		t.Errorf(`%+v %v; want len(data["issues"].([]any)) = 2, got.Text beginning with "Created 2 issues:\n- #2 no docs `+
			`(open)", r.github.issues[2]["title"] = "slow start", r.github.issues[2]["body"].(string) with "on old disks"`, got,
			r.github.issues)
	}
	if body := r.github.issues[0]["body"]; body != "1. start it\n2. look" {
		t.Errorf(`%q; want body = "1. start it\n2. look"`, body)
	}
	got, _ = r.ok(call("show me the open issues"), "MANAGE_ISSUES", `{}`)
	if !strings.HasPrefix(got.Text, "3 issues:") {
		t.Errorf(`%+v; want got.Text beginning with "3 issues:"`, got)
	}
	for _, c := range []struct{ name, params, operation string }{
		{"CLOSE_ISSUE", `{"issueNumber":2}`, "close"},
		{"GET_ISSUE", `{"issueNumber":2}`, "get"},
		{"MANAGE_ISSUES", `{"operation":"reopen","issueNumber":2}`, "reopen"},
		{"UPDATE_ISSUE", `{"issueNumber":2,"title":"No documentation"}`, "update"},
		{"COMMENT_ISSUE", `{"issueNumber":2,"body":"soon"}`, "comment"},
		{"MANAGE_ISSUES", `{"operation":"add_labels","issueNumber":2,"labels":["docs"]}`, "add_labels"},
		{"LIST_ISSUES", `{}`, "list"},
	} {
		if _, data := r.ok(call(""), c.name, c.params); data["operation"] != c.operation {
			t.Errorf(`%s %s: %v; want data["operation"] = %v`, c.name, c.params, data, c.operation)
		}
		if c.operation == "close" && r.github.issues[1]["state"] != "closed" {
			t.Error(`not closed; want not (c.operation == "close" && r.github.issues[1]["state"] != "closed")`)
		}
	}
	if i := r.github.issues[1]; i["state"] != "open" || i["title"] != "No documentation" || i["said"] != "soon" || i["labels"] == nil {
		t.Errorf(`%v; want i["state"] = "open", i["title"] = "No documentation", i["said"] = "soon", i["labels"] not nil`, i)
	}
	// What was made before a failure is told.
	r.github.full = 4
	got, data = r.fails(call(""), "CREATE_ISSUE", `{"body":"- a\n- b\n- c"}`, "FORGE_REFUSED")
	if len(data["issues"].([]any)) != 1 || !strings.HasPrefix(got.Text, "1 of 3 issues were created") {
		t.Errorf(`%+v; want len(data["issues"].([]any)) = 1, got.Text beginning with "1 of 3 issues were created"`, got)
	}
	if !slices.ContainsFunc(r.github.issues, func(i map[string]any) bool { return i["title"] == "a" }) {
		t.Error("a was not created")
	}
}
