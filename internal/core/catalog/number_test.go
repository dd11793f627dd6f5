package catalog

import (
	"strings"
	"testing"

	"github.com/junctor-run/junctor/capability"
)

// TestCostlyNumbersAreRefusedBeforeTheyCost: the validator computes with
// fractions of unbounded size.
func TestCostlyNumbersAreRefusedBeforeTheyCost(t *testing.T) {
	t.Parallel()
	schema, err := CompileSchema([]byte(`{"type":"object","properties":{"n":{"type":"array","items":{"type":"integer"}}}}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, number := range []string{"1e1000000", "1e-1000000", "1E+401", "1e99999999999999999999", strings.Repeat("9", 401)} {
		if code := capability.CodeOf(schema.Check([]byte(`{"n":[` + number + `]}`))); code != capability.CodeInvalidInput {
			t.Errorf("%.20s: %q; want code = capability.CodeInvalidInput", number, code)
		}
	}
	for _, number := range []string{"9007199254740993", "1e400", "-0", "1.0"} {
		if err := schema.Check([]byte(`{"n":[` + number + `]}`)); err != nil {
			t.Errorf("%s: %v", number, err)
		}
	}
}
