package lifecycle_test

import (
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/extensions/plan"
)

// making is a package whose plan makes the tool of its action.
func making(version, sum string) files {
	return sample(version).with("manifest.json", `"permissions_required"`, `"tools":[{"name":"sample","path":"work/two","sha256":"`+sum+
		`"}],"permissions_required"`)
}

func sumOf(text string) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])
}

func TestAToolThatThePlanMakesIsWhatTheManifestSays(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name, sum, script string
		reason            string // "": it is installed
	}{
		{"as announced", sumOf("two"), "write two", ""},
		{"another one", sumOf("three"), "write two", plan.ReasonVerification},
		{"none", sumOf("two"), "write three", plan.ReasonVerification},
		{"a link out of the folder", sumOf("two"), "link two", plan.ReasonVerification},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			rec, err := r.install(making("1.0.0", tt.sum).with("install/plan.yaml", "write two", tt.script), lifecycle.Options{})
			if tt.reason != "" {
				if capability.AsError(err).Reason != tt.reason || rec.FailedStep != "tool sample" {
					t.Errorf(`%+v %v; want capability.AsError(err).Reason = %v, rec.FailedStep = "tool sample"`, rec, err, tt.reason)
				}
				if left, _ := os.ReadDir(filepath.Join(r.cfg.Dir, "tools.sample")); len(left) != 0 {
					t.Errorf("%v; want len(left) = 0", left)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			made := filepath.Join(r.cfg.Dir, "tools.sample", archive.MadeDir, "sample")
			if got, err := os.ReadFile(made); err != nil || string(got) != "two" {
				t.Errorf(`%q %v; want no error, string(got) = "two"`, got, err)
			}
			r.enable("tools.sample") // it is not part of the package's own hash
			if _, err := r.install(making("1.1.0", sumOf("three")), lifecycle.Options{}); err == nil {
				t.Fatal("an upgrade whose plan makes another tool was taken; want an error")
			}
			if got, err := os.ReadFile(made); err != nil || string(got) != "two" {
				t.Errorf(`after the upgrade that failed: %q %v; want no error, string(got) = "two"`, got, err)
			}
		})
	}
	if _, err := newRig(t).install(sample("1.0.0").add(archive.MadeDir+"/sample", "x"),
		lifecycle.Options{}); capability.AsError(err).Reason != archive.ReasonViolation {
		t.Errorf("delivered where tools are made: %v; want capability.AsError(err).Reason = archive.ReasonViolation", err)
	}
}

func (f files) add(name, text string) files {
	f[name] = text
	return f
}
