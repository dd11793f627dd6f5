package deviceaction

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/internal/base/jsonx"
	"github.com/junctor-run/junctor/internal/nodes/skill/functions"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
	"github.com/junctor-run/junctor/protocol/cmp"
)

// program is an executable of the owner's. It runs as the owner, in a process group
// of its own, with an environment of four variables.
type program struct {
	path         string
	argv         []string
	byArgs, text bool
	stream       bool // each line is a chunk
}

// call runs the program. Its input is {"args": […], "kwargs": {…}} on standard
// input, or the arguments by place as words of its command line.
func (p program) call(ctx context.Context, c functions.Call) (json.RawMessage, error) {
	spec := sandbox.Spec{Path: p.path, Args: slices.Clone(p.argv), Env: environment(), StderrLimit: 4 << 10}
	if p.byArgs {
		words, err := asWords(c.Args)
		if err != nil {
			return nil, err
		}
		spec.Args = append(spec.Args, words...)
	} else {
		input, err := jsonx.Marshal(c.Args)
		if err != nil {
			return nil, cmp.Errorf(cmp.ReasonEncoding, "the arguments: %w", err)
		}
		if len(input) > sandbox.MaxStdin {
			return nil, cmp.Errorf(cmp.ReasonTooLarge, "the arguments have %d bytes; the limit is %d", len(input), sandbox.MaxStdin)
		}
		spec.Stdin = input
	}
	if p.stream {
		return nil, p.streamed(ctx, spec, c)
	}
	r, err := sandbox.Run(ctx, spec)
	if err := p.verdict(ctx, r, err); err != nil {
		return nil, err
	}
	return p.value(r.Stdout.Bytes())
}

// environment is all that the program sees of ours.
func environment() []string {
	var env []string
	for _, name := range []string{"PATH", "HOME", "LANG", "TMPDIR"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// asWords makes words of the arguments by place: texts as they are, other values as
// JSON. A word that begins with a hyphen could be taken for a flag of the program's.
func asWords(a cmp.Arguments) ([]string, error) {
	if len(a.Kwargs) > 0 {
		return nil, cmp.Errorf(cmp.ReasonParams, "this action takes its arguments by place only")
	}
	var words []string
	for _, v := range a.Args {
		word := string(v)
		if len(v) > 0 && v[0] == '"' {
			if err := jsonx.Unmarshal(v, &word); err != nil {
				return nil, cmp.Errorf(cmp.ReasonEncoding, "an argument: %w", err)
			}
		}
		if strings.HasPrefix(word, "-") || strings.ContainsRune(word, 0) {
			return nil, cmp.Errorf(cmp.ReasonParams, "an argument of this action may not begin with a hyphen or hold a NUL")
		}
		words = append(words, word)
	}
	return words, nil
}

func (p program) verdict(ctx context.Context, r sandbox.Result, err error) error {
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		return cmp.Errorf(cmp.ReasonExecution, "the action's program could not be started")
	case r.ExitCode != 0:
		text, _, _ := strings.Cut(strings.TrimSpace(string(r.Stderr.Bytes())), "\n")
		return cmp.Errorf(cmp.ReasonExecution, "the action's program ended with exit code %d: %.1000s", r.ExitCode, text)
	}
	return nil
}

func (p program) value(out []byte) (json.RawMessage, error) {
	if p.text {
		return jsonx.Marshal(strings.ToValidUTF8(string(out), "\uFFFD"))
	}
	out = bytes.TrimSpace(out)
	if len(out) == 0 {
		return json.RawMessage("null"), nil
	}
	if err := cmp.CheckJSON(out); err != nil {
		return nil, cmp.Errorf(cmp.ReasonExecution, "the action's program did not answer with one JSON value")
	}
	return out, nil
}

// streamed hands over each line as it is written. What runs is the program alone; a
// shell goes before it only to connect its output to our pipe.
func (p program) streamed(ctx context.Context, spec sandbox.Spec, c functions.Call) error {
	ctx, stop := context.WithCancelCause(ctx)
	defer stop(nil)
	out, in, err := os.Pipe()
	if err != nil {
		return cmp.Errorf(cmp.ReasonExecution, "no pipe could be made")
	}
	defer out.Close()
	spec.Path, spec.Args = "/bin/sh", append([]string{"-c", `exec "$0" "$@" 1>&3 3>&-`, spec.Path}, spec.Args...)
	spec.Files = []*os.File{in}
	heard := make(chan struct{})
	go func() { // ends when no process has the pipe
		defer close(heard)
		if err := p.lines(ctx, out, c); err != nil {
			stop(err)
		}
		_, _ = io.Copy(io.Discard, out)
	}()
	r, err := sandbox.Run(ctx, spec)
	in.Close()
	_ = out.SetReadDeadline(time.Now().Add(drainGrace)) // a user who left the group may still have it
	<-heard
	if cause := context.Cause(ctx); cause != nil && !errors.Is(cause, ctx.Err()) {
		return cause // a chunk was refused
	}
	return p.verdict(ctx, r, err)
}

func (p program) lines(ctx context.Context, from io.Reader, c functions.Call) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(make([]byte, 0, 4<<10), maxLine)
	for lines.Scan() {
		if len(bytes.TrimSpace(lines.Bytes())) == 0 && !p.text {
			continue
		}
		chunk, err := p.value(lines.Bytes())
		if err != nil {
			return err
		}
		if err := c.Emit(ctx, chunk); err != nil {
			return err
		}
	}
	if err := lines.Err(); err != nil && ctx.Err() == nil && !errors.Is(err, os.ErrDeadlineExceeded) {
		return fmt.Errorf("a line of the action's program: %w", err)
	}
	return nil
}
