package extension_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/extensions/archive"
	"github.com/junctor-run/junctor/internal/extensions/extension"
	"github.com/junctor-run/junctor/internal/extensions/operator"
)

func TestWhatANewAuthorGetsIsAPackage(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	at, err := extension.Scaffold(dir, "httpcheck", operator.ReservedCommand)
	if err != nil || filepath.Base(at) != "tools.httpcheck" {
		t.Fatalf(`err = %v, want nil; filepath.Base(at) = %q, want "tools.httpcheck"`, err, filepath.Base(at))
	}
	root, err := os.OpenRoot(at)
	if err != nil {
		t.Fatal(err)
	}
	defer root.Close()
	tree, err := archive.ReadDir(root)
	if err != nil {
		t.Fatal(err)
	}
	p, err := extension.Read(tree, extension.Rules{Strict: true, OS: "linux", Reserved: operator.ReservedCommand})
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff([]string{"exec", "network", "llm"}, p.Permissions); d != "" || p.Commands[0].Name != "/httpcheck" ||
		len(p.Plan.Steps) != 2 || len(p.Manifest.Network.Allow) != 2 {
		t.Errorf("package = %+v, want /httpcheck, 2 steps, 2 hosts; diff (-want +got):\n%s", p, d)
	}
	if _, err := extension.Scaffold(dir, "tools.httpcheck", nil); capability.CodeOf(err) != capability.CodeConflict {
		t.Errorf("%v; want capability.CodeOf(err) = capability.CodeConflict", err)
	}
	for _, bad := range []string{"", "..", "../x", "a/b", "core.x", "a.1", "a b", "help"} {
		if _, err := extension.Scaffold(dir, bad, operator.ReservedCommand); capability.CodeOf(err) != capability.CodeInvalidInput {
			t.Errorf("%q: %v; want capability.CodeOf(err) = capability.CodeInvalidInput", bad, err)
		}
	}
}
