package local

import (
	"fmt"
	"os"
	"strings"

	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/platform/httpapi"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// CheckRoots finds configured folders that do not exist, or that contain credentials of the user.
func CheckRoots(list []config.Root) httpapi.Check {
	c := httpapi.Check{Name: "local files", OK: true, Detail: fmt.Sprintf("%d roots", len(list))}
	if len(list) == 0 {
		c.Detail = "no root is configured, so fs.* and git.* are unavailable on this machine; that is fine if you do not want them"
	}
	for _, r := range list {
		if info, err := os.Stat(r.Path); err != nil || !info.IsDir() {
			c.OK, c.Detail = false, "the root "+r.ID+" is gone"
			c.Remedy = "make the directory again, or take fs.roots out of the configuration, and restart"
		} else if found := sandbox.Credentials(r.Path); c.OK && len(found) > 0 {
			c.OK, c.Detail = false, "the root "+r.ID+" contains credentials, which callers can read: "+strings.Join(found, ", ")
			c.Remedy = "name folders in " + r.Path + " as fs.roots, and restart"
		}
	}
	return c
}
