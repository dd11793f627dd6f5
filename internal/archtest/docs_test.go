package archtest

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestTheTestsThatDocumentsNameAreThere: a rule whose test has gone, or is called something
// else, is a rule that nothing holds.
func TestTheTestsThatDocumentsNameAreThere(t *testing.T) {
	t.Parallel()
	there, declared := map[string]bool{}, regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)\w+)\(`)
	for _, path := range sources(t, ".go") {
		if !strings.HasSuffix(path, "_test.go") {
			continue
		}
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range declared.FindAllSubmatch(data, -1) {
			there[string(m[1])] = true
		}
	}
	named := regexp.MustCompile("`((?:Test|Fuzz)[A-Z]\\w+)`")
	for _, path := range sources(t, ".md") {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllSubmatch(data, -1) {
			if !there[string(m[1])] {
				t.Errorf("%s names %s, which is no test", path, m[1])
			}
		}
	}
}
