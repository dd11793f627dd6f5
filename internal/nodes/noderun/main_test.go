package noderun

import (
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/junctor-run/junctor/host/device/pushcode"
)

// TestMain: what holds code here is found out by starting this program again.
func TestMain(m *testing.M) {
	if status, child := pushcode.Main(); child {
		os.Exit(status)
	}
	goleak.VerifyTestMain(m)
}
