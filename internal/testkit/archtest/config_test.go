package archtest

import (
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/junctor-run/junctor/internal/config"
)

// TestEveryConfigKeyReachesItsPart fails for a key that no product code reads. A wing that
// takes a section of the configuration reads its keys behind a name of its own.
func TestEveryConfigKeyReachesItsPart(t *testing.T) {
	t.Parallel()
	var wiring, sections strings.Builder // sections are the files of packages that take a section of the configuration
	for _, p := range packages(t) {
		path := p.path()
		if inFolder(path, "internal/config") || isTestSupport(path) || !inFolder(path, "internal") && !inFolder(path, "cmd") {
			continue
		}
		for _, name := range sourcesIn(t, p.Dir) {
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			wiring.Write(data)
			if slices.Contains(p.Imports, module+"/internal/config") {
				sections.Write(data)
			}
		}
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
			case !strings.Contains(wiring.String(), at) && !strings.Contains(sections.String(), "."+f.Name):
				t.Errorf("no product code reads the configuration key cfg%s", at)
			}
		}
	}
	walk(reflect.TypeFor[config.Config](), "")
}
