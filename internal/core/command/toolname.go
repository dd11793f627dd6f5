package command

import (
	"strings"

	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// ToolOf returns the tool name of a runner such as exec.postman_cli: the part after exec.,
// without one trailing _cli or _tool. A name that could be a path is invalid_input.
func ToolOf(runner string) (string, error) {
	name, exec := strings.CutPrefix(runner, "exec.")
	short, cut := strings.CutSuffix(name, "_cli")
	if !cut {
		short, cut = strings.CutSuffix(name, "_tool")
	}
	if cut && short != "" {
		name = short
	}
	if !exec || !IsToolName(name) {
		return "", fault.InvalidArgs("", "the runner %q names no tool", runner)
	}
	return name, nil
}

// IsToolName reports whether a name is [A-Za-z0-9][A-Za-z0-9._+-]{0,63}, so that it is
// never a path.
func IsToolName(s string) bool {
	for i := range len(s) {
		c := s[i]
		alnum := 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || '0' <= c && c <= '9'
		if !alnum && (i == 0 || !strings.ContainsRune("._+-", rune(c))) {
			return false
		}
	}
	return s != "" && len(s) <= maxToolName
}
