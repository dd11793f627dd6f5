package lifecycle_test

import (
	"bytes"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
)

func TestNothingRunsBeforeTheOperatorAgrees(t *testing.T) {
	t.Parallel()
	for name, plan := range map[string]string{
		"a shell step":            "steps:\n- {id: mark, type: exec.shell, command: 'write mark'}\n",
		"a download":              "steps:\n- {id: get, type: download.http, url: 'https://a.test/x', target: x}\n",
		"a request":               "steps:\n- {id: see, type: verify.http, url: 'https://a.test/x'}\n",
		"a shell step of removal": "steps: []\nuninstall: {steps: [{id: mark, type: exec.shell, command: 'write mark'}]}\n",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			f := sample("1.0.0").with("manifest.json", `"permissions_required":["exec"]`, `"permissions_required":["exec","network"]`)
			f["install/plan.yaml"] = "id: tools.sample\n" + plan
			data := f.zip(t)
			src := lifecycle.Source{Zip: bytes.NewReader(data), Size: int64(len(data))}
			var shown extension.Screen
			for _, agree := range []func(extension.Screen) bool{nil, func(s extension.Screen) bool { shown = s; return false }} {
				_, err := r.Manager.Install(t.Context(), admin(), src, lifecycle.Options{Agree: agree})
				e := capability.AsError(err)
				if e == nil || e.Code != capability.CodeApprovalRequired {
					t.Fatalf("Install(not agreed) = %v, want approval_required", err)
				}
				if text, _ := e.Details["text"].(string); !strings.Contains(text, "a.test") && !strings.Contains(text, "write mark") {
					t.Errorf("text = %q, want it to show the step", text)
				}
			}
			for _, event := range r.log.take() {
				if strings.HasPrefix(event, string(audit.ExtensionStepExecuted)) {
					t.Errorf("recorded %q before the operator agreed, want no step", event)
				}
			}
			if _, err := r.Show(t.Context(), "tools.sample"); capability.CodeOf(err) != capability.CodeNotFound {
				t.Errorf("Show = %v, want not_found", err)
			}
			_, err := r.Manager.Install(t.Context(), admin(), src, lifecycle.Options{
				Agree: func(s extension.Screen) bool { return s.TreeHash == shown.TreeHash },
			})
			if code := capability.CodeOf(err); err != nil && (code == capability.CodeApprovalRequired || strings.Contains(plan, "shell")) {
				t.Errorf("Install(agreed) = %v, want the plan to run", err)
			}
		})
	}
}
