package worker

import (
	"context"
	"errors"
	"os"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/core/command/fault"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// errDone is the cause for ending a process that has sent its result but does not exit.
var errDone = errors.New("it has answered")

// Run runs the code and returns when all its processes have ended. A result that the code sent
// counts, even if its process fails afterwards. Errors are
// invalid_input, reasons unsupported_language and bad_code_binding; too_large,
// reason code_too_large; timeout; cancelled; failed, reasons execution_failed
// (the code's own error, or an end without an answer), resource_limit
// (detail kind) and output_limit; and those of sandbox.Box. The result describes the run as
// far as possible, with an error too.
func (r *Runner) Run(ctx context.Context, job Job) (Result, error) {
	if err := r.check(&job); err != nil {
		return Result{}, err
	}
	room := r.confinement(&job)
	place, err := r.cfg.Walls.Place(room)
	if err != nil {
		return Result{}, err
	}
	theirs, ours, err := pipes()
	if err != nil {
		return Result{}, capability.Wrap(capability.CodeInternal, "worker", "no pipe could be made", err)
	}
	defer closeAll(theirs)
	defer closeAll(ours)
	began := time.Now()
	runCtx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	limited, cancel := context.WithTimeout(runCtx, job.Timeout+stopGrace)
	defer cancel()

	t := &talk{job: &job, pkg: place.Package, in: ours[0], out: ours[1], stop: stop}
	var talking sync.WaitGroup
	talking.Go(func() { t.run(limited) }) // ends when the other ends of the pipes are closed
	ran, runErr := r.cfg.Walls.Run(limited, r.spec(&job, theirs), room)
	closeAll(theirs)
	_ = ours[1].SetWriteDeadline(time.Now()) // the reader has ended
	cancel()
	talking.Wait()

	result := Result{Value: t.value, Chunks: t.chunks, Calls: t.calls, Duration: time.Since(began), Placement: ran.Placement, Usage: ran.Usage}
	return result, verdict(ctx, &job, t, ran, runErr, context.Cause(runCtx))
}

// verdict returns the first error that applies: none if the code sent a result, cancelled, a broken
// rule, the code's own error, a resource limit or another error of the sandbox, timeout, a
// failed setup, and last an end without a result.
func verdict(ctx context.Context, job *Job, t *talk, ran sandbox.Result, runErr, cause error) error {
	failure, known := errors.AsType[*capability.Error](runErr)
	switch {
	case t.value != nil:
		return nil
	case errors.Is(ctx.Err(), context.Canceled):
		return fault.Cancelled()
	case t.broken != nil:
		return t.broken
	case t.failed != nil:
		return t.failed.fault(job)
	case known && failure.Reason == capability.ReasonResourceLimit && failure.Details["kind"] == "memory":
		return memoryLimit(job)
	case known:
		return failure
	case errors.Is(runErr, context.DeadlineExceeded):
		return fault.TimedOut(job.Timeout)
	case runErr != nil && !errors.Is(cause, errDone):
		return fault.SandboxSetupFailed(job.Floor.String(), runErr)
	}
	how := "with exit code " + strconv.Itoa(ran.ExitCode)
	if ran.Signal != "" {
		how = "by " + ran.Signal
	}
	text := strings.TrimSpace(string(ran.Stderr.Bytes()))
	text, _, _ = strings.Cut(text, "\n")
	return executionFailed("its process ended %s and without an answer: %s", how, text)
}

func executionFailed(format string, args ...any) *capability.Error {
	e := capability.Errorf(capability.CodeFailed, "worker", "the script failed: "+format, args...).With("execution_failed", "")
	e.Message = text.ShortenRunes(fault.OneLine(e.Message), 600)
	return e
}

func memoryLimit(job *Job) *capability.Error {
	return fault.ResourceLimit("memory", strconv.FormatInt(job.Memory>>20, 10)+" MiB").Detail("kind", "memory")
}

// pipes creates two pipes, one to the process and one back, and returns the process's ends and the
// server's ends.
func pipes() (theirs, ours []*os.File, err error) {
	in, toThem, err := os.Pipe()
	if err != nil {
		return nil, nil, err
	}
	fromThem, out, err := os.Pipe()
	if err != nil {
		closeAll([]*os.File{in, toThem})
		return nil, nil, err
	}
	return []*os.File{in, out}, []*os.File{fromThem, toThem}, nil
}

func closeAll(files []*os.File) {
	for _, f := range files {
		_ = f.Close()
	}
}

// spec returns the program to run: the Python interpreter, or this binary as a worker.
func (r *Runner) spec(job *Job, files []*os.File) sandbox.Spec {
	s := sandbox.Spec{Files: files, StdoutLimit: 4 << 10, StderrLimit: 16 << 10, Grace: 100 * time.Millisecond}
	if job.Language == Python {
		s.Path, s.Args, s.Env = r.cfg.Python, []string{"-I", "-B", "-X", "utf8", "-c", shim}, []string{"LANG=C.UTF-8"}
		return s
	}
	s.Self, s.Args = true, []string{workerName}
	s.Env = []string{
		"GORACE=atexit_sleep_ms=0", "GOTRACEBACK=none", "GOMAXPROCS=2", "GOGC=off",
		"GOMEMLIMIT=" + strconv.FormatInt(job.Memory+overhead/2, 10),
	}
	return s
}

// confinement returns the confinement of the process: no files, no network.
func (r *Runner) confinement(job *Job) sandbox.Confinement {
	c := sandbox.Confinement{
		MinTier: job.Floor, Network: sandbox.NetworkNone, UID: job.UID, GID: job.GID, Bare: r.bare(),
		Limits: sandbox.Limits{
			Memory: job.Memory + overhead, Processes: 64, CPU: job.Timeout + 2*stopGrace, FileSize: 1, OpenFiles: 32, Disk: -1, Temp: 64 << 10,
		},
	}
	if job.Language == Python {
		c.Bare, c.Package = false, job.Package
		c.Limits.Memory, c.Limits.FileSize = job.Memory, 0
	}
	return c
}
