package worker

import (
	_ "embed"
	"errors"
	"fmt"
	"strings"
	"time"

	"modernc.org/quickjs"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

//go:embed prelude.js
var prelude string

// javascript runs the code of c in an engine of its own.
func javascript(c *conn, deadline time.Time) (value jsonx.Raw, err error) {
	vm, err := quickjs.NewVM()
	if err != nil {
		return nil, fmt.Errorf("the engine does not start: %w", err)
	}
	// Neither it nor its values are freed: the process ends next, and an engine out
	// of memory may not survive it.
	vm.SetMemoryLimit(uintptr(c.order.Memory))
	vm.SetMaxStackSize(maxDepth)
	timer := time.AfterFunc(time.Until(deadline), vm.Interrupt)
	defer timer.Stop()
	var ended *failure
	emit := func(args []any) (any, error) {
		kind, text := word(args, 0), jsonx.Raw(word(args, 1))
		switch kind {
		case "chunk":
			err := c.chunk(text)
			if f, ok := errors.AsType[*failure](err); ok && ended == nil {
				ended = f
			}
			return nil, err
		case "result":
			value = text
		case "error":
			if ended == nil {
				ended = thrown(text)
			}
		}
		return nil, nil
	}
	call := func(args []any) (any, error) {
		got, err := c.call(word(args, 0), jsonx.Raw(word(args, 1)))
		return string(got), err
	}
	if err := errors.Join(vm.RegisterHostFunc("__emit", emit), vm.RegisterHostFunc("__call", call)); err != nil {
		return nil, err
	}
	run, err := vm.EvalValue(prelude, quickjs.EvalGlobal)
	if err != nil {
		return nil, fmt.Errorf("the prelude: %w", err)
	}
	if err := runUntil(vm, deadline, func() error {
		_, err := vm.EvalValue(string(c.code), quickjs.EvalGlobal)
		return err
	}); err != nil {
		return nil, err
	}
	if err := runUntil(vm, deadline, func() error {
		_, err := run.CallValue(quickjs.UndefinedValue, c.order.Entry, c.order.Handler, string(c.input))
		return err
	}); err != nil {
		return nil, err
	}
	for value == nil && ended == nil {
		n := 0
		if err := runUntil(vm, deadline, func() (err error) { n, err = vm.ExecutePendingJobs(); return err }); err != nil {
			return nil, err
		}
		if n == 0 {
			break
		}
	}
	switch {
	case ended != nil:
		return nil, ended
	case value == nil:
		return nil, errors.New("its promise is never settled: there is nothing left to run")
	case !jsonx.Valid(value):
		return nil, errors.New("its result is not JSON")
	}
	return value, nil
}

// runUntil calls part with the engine's limit set to the time that remains until deadline. It returns
// a timeout without calling part if no time remains. An error of JavaScript becomes a failure
// whose message has its line.
func runUntil(vm *quickjs.VM, deadline time.Time, part func() error) error {
	left := time.Until(deadline)
	if left <= 0 {
		return &failure{Kind: kindTimeout}
	}
	if err := vm.SetEvalTimeout(left); err != nil {
		return err
	}
	err := part()
	if err == nil {
		return nil
	}
	e, ok := errors.AsType[*quickjs.Error](err)
	if !ok {
		return err
	}
	f := failed(e.Name, e.Message, e.Stack)
	if e.LineNumber > 0 {
		f.Message = fmt.Sprintf("%s (line %d)", f.Message, e.LineNumber)
	}
	return f
}

// thrown reads an error that the prelude caught.
func thrown(text jsonx.Raw) *failure {
	var e struct {
		Name    string `json:"name"`
		Message string `json:"message"`
		Stack   string `json:"stack"`
	}
	if err := jsonx.Unmarshal(text, &e); err != nil {
		return &failure{Kind: kindCode, Message: "it threw what cannot be shown"}
	}
	return failed(e.Name, e.Message, e.Stack)
}

// failed names an error of the engine. The place is the first line of the stack.
func failed(name, message, stack string) *failure {
	if name == "InternalError" {
		switch message {
		case "out of memory":
			return &failure{Kind: kindMemory}
		case "interrupted":
			return &failure{Kind: kindTimeout}
		}
	}
	text := message
	if name != "" {
		text = name + ": " + message
	}
	if place, _, _ := strings.Cut(strings.TrimSpace(stack), "\n"); place != "" {
		text += " (" + place + ")"
	}
	return &failure{Kind: kindCode, Message: text}
}

func word(args []any, i int) string {
	if i >= len(args) {
		return ""
	}
	s, _ := args[i].(string)
	return s
}
