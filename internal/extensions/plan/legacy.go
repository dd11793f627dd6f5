package plan

import (
	"cmp"
	"path"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// modern converts the older spellings of a step to the current ones: action instead of
// type, and older names of kinds and members. It returns the kind of step.
func (c *checker) modern(w *wire) (string, error) {
	kind := cmp.Or(w.Type, w.Action)
	of := map[string]string{
		"check_dependency": VerifyCommand, "download_binary": Download, "install_binary": Shell, "create_symlink": Shell,
		"verify_installation": Shell,
		"set_config":          WriteConfig, "detect_platform": DetectPlatform, "write_config": WriteConfig,
		"verify_command_exists": VerifyCommand,
		"test_command":          Shell,
	}[kind]
	if of == "" {
		return kind, nil
	}
	c.warnings = append(c.warnings, "step "+w.ID+": "+kind+" is read as "+of)
	w.Command = cmp.Or(w.Command, w.Name, w.Dependency)
	w.Target = inWork(cmp.Or(w.Target, w.Destination))
	switch kind {
	case "install_binary", "create_symlink":
		from, to := inWork(w.Source), cmp.Or(inWork(w.Link), w.Target)
		if from == "" || to == "" {
			return "", bad(ReasonPlan, "%s needs a source and a target", kind)
		}
		for _, p := range []*string{&from, &to} {
			if err := confined(p); err != nil {
				return "", err
			}
		}
		w.Target = ""
		if kind == "install_binary" {
			w.Command = "mkdir -p " + quote(path.Dir(to)) + " && cp -- " + quote(from) + " " + quote(to) + " && chmod 755 -- " + quote(to)
		} else {
			w.Command = "mkdir -p " + quote(path.Dir(to)) + " && ln -sf -- \"$PWD\"/" + quote(from) + " " + quote(to)
		}
	case "set_config":
		w.Key = cmp.Or(w.Key, w.OldKey)
		if len(w.Value) == 0 {
			w.Value = w.OldValue
		}
	case "write_config":
		if w.Key == "" && w.OldKey == "" && len(w.Data) > 0 {
			w.Key = "config" // the older form wrote one document
			w.Value = w.Data
		}
		w.Key = cmp.Or(w.Key, w.OldKey)
		if len(w.Value) == 0 {
			w.Value = w.OldValue
		}
	}
	if of == WriteConfig && len(w.Value) > 0 && !jsonx.Valid(w.Value) {
		return "", bad(ReasonPlan, "the value is not JSON")
	}
	return of, nil
}

// inWork replaces a system path such as /usr/bin/x with bin/x in the working folder.
func inWork(p string) string {
	for _, root := range []string{"/usr/", "/bin/", "/opt/", "/sbin/"} {
		if strings.HasPrefix(p, root) {
			return "bin/" + path.Base(p)
		}
	}
	return p
}

// quote quotes s as one word for a shell.
func quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
