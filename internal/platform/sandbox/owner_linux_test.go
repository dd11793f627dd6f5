package sandbox

import (
	"fmt"
	"os"
	"os/exec"
	"testing"
)

// What a killed server left is found although its number belongs to another process now.
func TestOwnersAreKnownByTheirStart(t *testing.T) {
	t.Parallel()
	ended := exec.Command("/bin/true")
	if err := ended.Run(); err != nil {
		t.Fatal(err)
	}
	pid := os.Getpid()
	for tag, want := range map[string]bool{
		ownerTag():                                false,
		fmt.Sprintf("%d.%d", pid, startOf(pid)):   false,
		fmt.Sprintf("%d.%d", pid, startOf(pid)-1): true,
		fmt.Sprint(pid):                           false,
		fmt.Sprintf("%d.1", ended.Process.Pid):    true,
		fmt.Sprint(ended.Process.Pid):             true,
		"x":                                       false,
		"":                                        false,
	} {
		if got := ownerGone(tag); got != want {
			t.Errorf("ownerGone(%q) = %v, want %v", tag, got, want)
		}
	}
}
