package archtest

import (
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/config"
)

// TestEveryConfigKeyReachesItsPart: a key that nothing reads is a promise that
// nobody keeps.
func TestEveryConfigKeyReachesItsPart(t *testing.T) {
	t.Parallel()
	var wiring strings.Builder
	for _, name := range sources(t, ".go") {
		path := filepath.ToSlash(strings.TrimPrefix(name, repository+"/"))
		if strings.HasSuffix(name, "_test.go") || inFolder(path, "internal/config") || !strings.HasPrefix(path, "internal/") && !strings.HasPrefix(path, "cmd/") {
			continue
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		wiring.Write(data)
	}
	var walk func(typ reflect.Type, selector string)
	walk = func(typ reflect.Type, selector string) {
		for i := range typ.NumField() {
			f := typ.Field(i)
			at := selector + "." + f.Name
			switch {
			case f.Tag.Get("koanf") == "-" || f.Name == "InsecurePlainHTTP": // Validate reads that one
			case f.Type.Kind() == reflect.Struct:
				walk(f.Type, at)
			case !strings.Contains(wiring.String(), at):
				t.Errorf("nothing reads cfg%s", at)
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
}
