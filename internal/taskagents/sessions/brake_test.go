package sessions_test

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/junctor-run/junctor/internal/taskagents/sessions"
)

func TestAProgramThatPrintsTooMuchIsNotReadForASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var b sessions.Brake
		began := time.Now()
		for range 24 << 20 / (32 << 10) {
			b.Took(t.Context(), 32<<10)
		}
		if took := time.Since(began); took != 2*time.Second {
			t.Errorf("24 MiB were read in %s; want took = 2 * time.Second", took)
		}
		b = sessions.Brake{}
		slow := time.Now()
		for range 100 {
			<-time.After(100 * time.Millisecond)
			b.Took(t.Context(), 500<<10)
		}
		if took := time.Since(slow); took != 10*time.Second {
			t.Errorf("5 MB a second were held up: %s; want took = 10 * time.Second", took)
		}
	})
}
