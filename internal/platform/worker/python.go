package worker

import (
	_ "embed"
	"os"
	"path/filepath"
	"strings"
)

// shim is the program that the interpreter runs. It uses the same protocol as this binary.
//
//go:embed shim.py
var shim string

// SystemPython returns the path of a Python interpreter below /usr, which programs in the
// sandbox can see, or "".
func SystemPython() string {
	for _, dir := range []string{"/usr/bin", "/usr/local/bin"} {
		path, err := filepath.EvalSymlinks(filepath.Join(dir, "python3"))
		if err != nil || !strings.HasPrefix(path, "/usr/") {
			continue
		}
		if st, err := os.Stat(path); err == nil && st.Mode().IsRegular() && st.Mode()&0o111 != 0 {
			return path
		}
	}
	return ""
}
