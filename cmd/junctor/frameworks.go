package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/internal/taskagents/programs/detect"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/taskagents/programs"
	"github.com/junctor-run/junctor/internal/taskagents/programs/cast"
	"github.com/junctor-run/junctor/internal/taskagents/programs/preflight"
)

// frameworksCommand returns the commands about the programs of task agents and their rule files.
func (a *app) frameworksCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List the known programs, and whether each is installed and logged in", Args: cobra.NoArgs,
		Long: `List the known programs: whether each is installed, in which version, and whether
somebody is logged in. The programs are asked themselves, 5 s for each question; what they
keep is not read.`,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.listFrameworks(cmd.Context()) },
	}
	var name, version string
	play := &cobra.Command{
		Use: "replay FILE", Short: "Replay a recorded session and print each change of state with its evidence", Args: cobra.ExactArgs(1),
		Example: `  junctor frameworks replay session.cast --framework claude`,
		Long: `Run a recording through the screen model and the detector of states, on the
recording's own clock, and print each change of state with what it rests on.

A recording is a header line and one event on each line after it:
  {"version":1,"cols":120,"rows":40,"cli":"Claude Code 2.1.197"}
  [0.12,"o","what the program printed"]
  [1.5,"i","what was typed"]`,
		RunE: func(_ *cobra.Command, args []string) error { return a.replayRecording(args[0], name, version) },
	}
	play.Flags().StringVar(&name, "framework", "", "`FRAMEWORK` program that was recorded (default what the recording says)")
	play.Flags().StringVar(&version, "framework-version", "", "`VERSION` version of that program (default what the recording says)")
	return a.group("frameworks", "Look at the programs of task agents, and replay recordings of them", list, play)
}

// ruleFiles returns the built-in rule files and those in the home's folder "frameworks".
func (a *app) ruleFiles() ([]*detect.File, error) {
	home, err := a.findHome()
	if err != nil {
		return nil, err
	}
	return detect.Load(filepath.Join(home, "frameworks"))
}

// frameworkRow is one known program.
type frameworkRow struct {
	Name  programs.Name   `json:"name"`
	Also  []string        `json:"also"`
	Rules []frameworkFile `json:"rules"`
	preflight.Result
}

type frameworkFile struct {
	Revision int    `json:"revision"`
	Min      string `json:"min_version,omitempty"`
	Max      string `json:"max_version,omitempty"`
	Rules    int    `json:"rules"`
	Source   string `json:"source"`
}

// listFrameworks prints the known programs with their installation, login and rule files.
func (a *app) listFrameworks(ctx context.Context) error {
	files, err := a.ruleFiles()
	if err != nil {
		return err
	}
	rows := []frameworkRow{}
	checked := preflight.Check(ctx, preflight.Config{Env: a.env})
	for i, accepted := range programs.All() {
		row := frameworkRow{Name: accepted.Name, Also: accepted.Aliases[1:], Rules: []frameworkFile{}, Result: checked[i]}
		for _, f := range files {
			if f.Framework == accepted.Name {
				row.Rules = append(row.Rules, frameworkFile{f.Revision, f.Min, f.Max, len(f.Rules), f.Source})
			}
		}
		rows = append(rows, row)
	}
	if a.json {
		return a.printObject(map[string]any{"frameworks": rows})
	}
	var cells [][]string
	for _, r := range rows {
		rules := "none"
		if len(r.Rules) > 0 {
			f := r.Rules[0]
			rules = fmt.Sprintf("revision %d", f.Revision)
			if f.Min+f.Max != "" {
				rules += fmt.Sprintf(", %s to %s", dash(f.Min), dash(f.Max))
			}
			if f.Source != detect.BuiltIn {
				rules += ", " + f.Source
			}
		}
		found, account := "not found", string(r.Auth.Status)
		if r.Installed {
			found = strings.TrimSpace(r.Path + " " + r.Version + " " + r.Error)
		} else if r.InstallCommand != "" {
			found, account = "not found: "+r.InstallCommand, ""
		}
		if r.Auth.Method != "" {
			account += ", " + r.Auth.Method
		}
		if r.Auth.LoginHint != "" {
			account += ": " + r.Auth.LoginHint
		}
		cells = append(cells, []string{string(r.Name), dash(strings.Join(r.Also, ", ")), found, dash(account), rules})
	}
	return a.table([]string{"NAME", "ALSO", "PROGRAM", "ACCOUNT", "RULES"}, cells, "")
}

// replayRecording replays a recording and prints the changes of state; other messages go to
// standard error.
func (a *app) replayRecording(path, name, version string) error {
	rec, err := readRecording(path)
	if err != nil {
		return err
	}
	files, err := a.ruleFiles()
	if err != nil {
		return err
	}
	subject := detect.Subject{Version: version}
	if name != "" {
		known, ok := programs.Normalise(name)
		if !ok {
			return capability.Errorf(capability.CodeInvalidInput, "", "%q is not a known framework", name).With("", "see: junctor frameworks list")
		}
		subject.Framework = known
		if guess, err := detect.GuessProgram(rec, path); err == nil && guess.Framework == known && version == "" {
			subject.Version = guess.Version
		}
	} else {
		if subject, err = detect.GuessProgram(rec, filepath.ToSlash(path)); err != nil {
			return err
		}
		if version != "" {
			subject.Version = version
		}
		fmt.Fprintf(a.stderr, "junctor: this is %s, %s\n", strings.TrimSpace(string(subject.Framework)+" "+plainText(subject.Version)),
			subject.How)
	}
	file, remark, err := detect.Pick(files, subject.Framework, subject.Version)
	if err != nil {
		return err
	}
	if remark != "" {
		fmt.Fprintln(a.stderr, "junctor: "+plainText(remark))
	}
	return detect.Replay(rec, file, subject.Version, func(s detect.ReplayStep) error {
		if a.json {
			return a.printObject(s)
		}
		var because []string
		for _, e := range s.Evidence {
			text := plainText(e.Text)
			if e.Rule != "" {
				text = e.Rule + " in " + e.Source + ": " + text
			}
			because = append(because, text)
		}
		_, err := fmt.Fprintf(a.stdout, "%9.3fs  %s -> %s  (%s) %s\n", s.T, s.From, s.To, s.Cause, strings.Join(because, "; "))
		return err
	})
}

func readRecording(path string) (*cast.Recording, error) {
	f, err := os.Open(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, capability.Errorf(capability.CodeNotFound, "", "%s does not contain a recording", path).With("",
			"see what a recording is with: junctor frameworks replay --help")
	case err != nil:
		return nil, capability.Wrap(capability.CodeInvalidInput, "", "the recording at "+path+" cannot be opened", err)
	}
	defer f.Close()
	return cast.Read(f)
}
