package programs

import (
	"embed"
	"io/fs"
)

//go:embed rules/*.json
var rules embed.FS

// Rules returns the rule files that come with junctor, one for each program and range
// of versions. Package detect reads them.
func Rules() fs.FS {
	sub, err := fs.Sub(rules, "rules")
	if err != nil {
		return rules // "rules" is a valid path, so that fs.Sub cannot fail
	}
	return sub
}
