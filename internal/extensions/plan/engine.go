package plan

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime/debug"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/extensions/archive"
)

// Program is a script of a step, to be run in the extension's sandbox with the
// working folder as its directory.
type Program struct {
	Extension   string
	Install     string // id of the install, for records
	Step        string
	PowerShell  bool // else bash if there is one, or sh; with -c
	Script      string
	Package     string   // the package's folder on the host, to be read only
	Work        string   // its working folder on the host, the only one to be written
	Permissions []string // declared, canonical; they determine the sandbox
	Env         []string // in addition to the default variables
	Timeout     time.Duration
}

// Outcome is the exit code of a program and its output for display.
type Outcome struct {
	ExitCode int
	Output   string
}

// Programs runs the scripts of plans. Run returns when all processes of the script have ended; an
// error means that the script could not be run as requested. A non-zero exit code is not an error.
type Programs interface {
	Run(ctx context.Context, p Program) (Outcome, error)
	// Exists reports whether the extension would find a program of that name.
	Exists(ctx context.Context, extension, name string) (bool, error)
}

// Fetcher downloads files; [HTTPFetcher] implements it.
type Fetcher interface {
	// Fetch downloads at most limit bytes to to. Before a retry it calls restart,
	// which must discard what was written.
	Fetch(ctx context.Context, address string, to io.Writer, limit int64, restart func() error) error
	// Check reports whether the address answers with 2xx or 3xx.
	Check(ctx context.Context, address string) error
}

// Engine runs plans. It is safe for concurrent use.
type Engine struct {
	Programs Programs
	Fetcher  Fetcher
}

// Job is one run of a list of steps.
type Job struct {
	Extension   string
	Install     string
	Steps       []Step
	Package     string // host path
	Work        string // host path of Root
	Root        *os.Root
	Platform    Platform
	Permissions []string
	// Done is called after each step; an error from it ends the run.
	Done func(Report) error
}

// Status is how a step ended.
type Status string

// The ways a step ends.
const (
	Completed Status = "completed"
	Skipped   Status = "skipped" // its condition is false
	Failed    Status = "failed"
)

// Report is the result of one step.
type Report struct {
	Step     string
	Type     string
	Status   Status
	Number   int // from 1
	Total    int
	Duration time.Duration
	Output   string // at most 500 characters
	Err      error
}

// Result is the result of a run.
type Result struct {
	Completed []string
	Skipped   []string
	// Config holds the settings of write.config steps. The caller stores them after
	// the whole install has succeeded.
	Config map[string]json.RawMessage
}

// Run runs the steps in order and stops at the first that fails; the error's detail
// failed_step names it. The caller removes the files that remain in the working folder.
func (e *Engine) Run(ctx context.Context, j Job) (Result, error) {
	r := Result{Config: make(map[string]json.RawMessage)}
	for i := range j.Steps {
		s := &j.Steps[i]
		report := Report{Step: s.ID, Type: s.Type, Status: Skipped, Number: i + 1, Total: len(j.Steps)}
		if s.when.Holds(j.Platform) {
			began := time.Now()
			report.Output, report.Err = e.step(ctx, &j, s, &r)
			report.Duration, report.Status = time.Since(began), Completed
		}
		switch {
		case report.Err != nil:
			failed := *capability.AsError(report.Err) // a copy: the step's name is added
			failed.Details = nil
			for k, v := range capability.AsError(report.Err).Details {
				_ = failed.Detail(k, v)
			}
			failed.Reason = cmp.Or(failed.Reason, ReasonUnknown)
			report.Status, report.Err = Failed, failed.Detail("failed_step", s.ID)
		case report.Status == Completed:
			r.Completed = append(r.Completed, s.ID)
		default:
			r.Skipped = append(r.Skipped, s.ID)
		}
		report.Output = outputOf(report.Output)
		if j.Done != nil {
			if err := j.Done(report); err != nil && report.Err == nil {
				return r, err
			}
		}
		if report.Err != nil {
			return r, report.Err
		}
	}
	return r, nil
}

// step runs one step within its timeout. A panic becomes an error, because a step
// processes untrusted input.
func (e *Engine) step(ctx context.Context, j *Job, s *Step, r *Result) (output string, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = capability.Wrap(capability.CodeInternal, "plan", "the step broke inside junctor",
				fmt.Errorf("%v\n%s", p, debug.Stack())).With(ReasonUnknown, "")
		}
	}()
	if e.Programs == nil && (s.Type == Shell || s.Type == PowerShell || s.Type == VerifyCommand) {
		return "", capability.Errorf(capability.CodeUnavailable, "plan", "programs cannot be run here").With("sandbox_unavailable", "")
	}
	outer := ctx
	ctx, cancel := context.WithTimeout(ctx, s.Timeout)
	defer cancel()
	switch s.Type {
	case DetectPlatform:
		output = "platform.os=" + j.Platform.OS + " platform.arch=" + j.Platform.Arch
	case Download:
		output, err = e.download(ctx, j, s)
	case ExtractZip, ExtractTar:
		err = extract(ctx, j, s)
	case Shell, PowerShell:
		output, err = e.run(ctx, j, s)
	case VerifyCommand:
		name := strings.Fields(s.Command)[0]
		var there bool
		there, err = e.Programs.Exists(ctx, j.Extension, name)
		if err == nil && !there {
			err = capability.Errorf(capability.CodeFailed, "plan", "%s is not installed on this machine", name).With(ReasonVerification,
				"install "+name+", then install the extension again")
		}
	case VerifyHTTP:
		err = e.Fetcher.Check(ctx, s.URL)
	case WriteConfig:
		r.Config[s.Key] = s.Value
	default:
		err = capability.Errorf(capability.CodeInvalidInput, "plan", "%.40q is not a kind of step", s.Type).With(ReasonStepType, "")
	}
	if err != nil && ctx.Err() != nil && outer.Err() == nil {
		err = capability.Wrap(capability.CodeTimeout, "plan", fmt.Sprintf("the step took longer than %s", s.Timeout), err).With(ReasonTimeout,
			"raise the step's timeout, or split it")
	}
	return output, err
}

// run runs the script of a step. A non-zero exit code is failed, with its last line.
func (e *Engine) run(ctx context.Context, j *Job, s *Step) (string, error) {
	out, err := e.Programs.Run(ctx, Program{
		Extension: j.Extension, Install: j.Install, Step: s.ID, PowerShell: s.Type == PowerShell, Script: s.Command,
		Package: j.Package, Work: j.Work, Permissions: j.Permissions, Timeout: s.Timeout,
		Env: []string{"AGENTOS_EXTENSION_ID=" + j.Extension},
	})
	if err == nil && out.ExitCode != 0 {
		last := strings.TrimSpace(out.Output)
		last = outputOf(last[strings.LastIndexByte(last, '\n')+1:])
		err = capability.Errorf(capability.CodeFailed, "plan", "the command ended with exit code %d: %s", out.ExitCode, last).With(ReasonCommand,
			"").Detail("exit_code", out.ExitCode)
	}
	return out.Output, err
}

// download fetches to a temporary file beside the target, compares its SHA-256 if the
// step has one, and renames it, so that the target never exists incomplete.
func (e *Engine) download(ctx context.Context, j *Job, s *Step) (string, error) {
	failed := func(err error) (string, error) {
		if own, ok := errors.AsType[*capability.Error](err); ok {
			return "", own
		}
		return "", capability.Wrap(capability.CodeFailed, "plan", "the download could not be stored", err).With(ReasonDownload, "")
	}
	if dir := path.Dir(s.Target); dir != "." {
		if err := j.Root.MkdirAll(dir, 0o755); err != nil {
			return failed(err)
		}
	}
	part := path.Join(path.Dir(s.Target), ".part-"+s.ID)
	_ = j.Root.Remove(part)
	f, err := j.Root.OpenFile(part, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return failed(err)
	}
	defer j.Root.Remove(part) //nolint:errcheck // fails after the rename
	defer f.Close()
	sum, n := sha256.New(), int64(0)
	to := io.MultiWriter(f, sum, counter{&n})
	err = e.Fetcher.Fetch(ctx, s.URL, to, MaxDownload, func() error {
		sum.Reset()
		n = 0
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return err
		}
		return f.Truncate(0)
	})
	if err != nil {
		return failed(err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); s.SHA256 != "" && got != s.SHA256 {
		return "", capability.Errorf(capability.CodeFailed, "plan", "what came is not what was announced: its sha256 is %s",
			got).With(ReasonVerification, "ask the author; the file has changed, or was tampered with")
	}
	if err := errors.Join(f.Chmod(0o644), j.Root.Rename(part, s.Target)); err != nil {
		return failed(err)
	}
	return fmt.Sprintf("%d bytes", n), nil
}

type counter struct{ n *int64 }

func (c counter) Write(p []byte) (int, error) {
	*c.n += int64(len(p))
	return len(p), nil
}

// extract unpacks the source of a step, a file of the working folder, to its target.
func extract(ctx context.Context, j *Job, s *Step) error {
	failed := func(err error) error {
		if own, ok := errors.AsType[*capability.Error](err); ok {
			return own
		}
		return capability.Wrap(capability.CodeFailed, "plan", "the archive could not be extracted", err).With(ReasonUnknown, "")
	}
	// The extension's programs write to the folder, so the source may be a link, a
	// pipe or anything else.
	f, err := archive.OpenRegular(j.Root, s.Source)
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "plan", s.Source+" is not there, or no file", err).With(ReasonUnknown,
			"download it in an earlier step")
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return failed(err)
	}
	to := j.Root
	if s.Target != "." {
		if err := j.Root.MkdirAll(s.Target, 0o755); err != nil {
			return failed(err)
		}
		if to, err = j.Root.OpenRoot(s.Target); err != nil {
			return failed(err)
		}
		defer to.Close()
	}
	if s.Type == ExtractTar {
		err = archive.UnpackTar(ctx, f, info.Size(), to)
	} else {
		var tree *archive.Tree
		if tree, err = archive.ReadZip(f, info.Size()); err == nil {
			err = tree.Unpack(ctx, to)
		}
	}
	if err != nil {
		return failed(err)
	}
	return nil
}

// outputOf returns the part of a program's output that a report keeps.
func outputOf(s string) string {
	return text.CutRunes(strings.ToValidUTF8(s, "\uFFFD"), maxOutput)
}
