package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/nodes/noderun"
)

// detachNode starts this command again in the background and returns when the node has joined, or
// with the node's error. The node's output is written to node.log in the home. If ctx ends before,
// the node is terminated.
func (a *app) detachNode(ctx context.Context, home string) error {
	dir := noderun.Dir(home)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return capability.Wrap(capability.CodeFailed, "node", "the home "+home+" cannot be made", err)
	}
	program, err := os.Executable()
	if err != nil {
		return err
	}
	logFile := filepath.Join(dir, "node.log")
	log, err := os.OpenFile(logFile, os.O_WRONLY|os.O_CREATE|os.O_APPEND, 0o600)
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "node", "the node's log cannot be opened", err)
	}
	defer log.Close()
	told, tell, err := os.Pipe()
	if err != nil {
		return err
	}
	defer told.Close()
	args := append(slices.DeleteFunc(slices.Clone(os.Args[1:]),
		func(s string) bool { return s == "--detach" || strings.HasPrefix(s, "--detach=") }), "--detached-to=3")
	child := exec.Command(program, args...)
	child.Env, child.Stdout, child.Stderr = a.environ, log, log
	child.ExtraFiles = []*os.File{tell}
	child.SysProcAttr = ownSession()
	err = child.Start()
	tell.Close()
	if err != nil {
		return capability.Wrap(capability.CodeFailed, "node", "the node cannot be started in the background", err)
	}
	ended := context.AfterFunc(ctx, func() { _ = child.Process.Signal(syscall.SIGTERM) }) // the user cancelled the start
	line, readErr := bufio.NewReaderSize(told, 64<<10).ReadBytes('\n')
	if !ended() {
		_ = child.Wait()
		return capability.AsError(ctx.Err())
	}
	var said struct {
		readyNode
		Error *capability.Error `json:"error"`
	}
	if err := json.Unmarshal(line, &said); readErr != nil || err != nil {
		_ = child.Wait()
		return capability.Wrap(capability.CodeFailed, "node", "the node ended before it had joined", errors.Join(readErr, err)).With("",
			"see "+logFile)
	}
	if said.Error != nil {
		_ = child.Wait()
		return said.Error
	}
	said.Log = logFile
	if err := child.Process.Release(); err != nil {
		return err
	}
	if a.json {
		return a.printObject(said.readyNode)
	}
	a.printf("Joined %s as %s, with %d functions; process %d, log %s.\n", said.Gateway, said.NodeID, said.Functions, said.PID, logFile)
	return nil
}

// reportDetached writes ready or err to the process that started this one in the background, and
// closes fd, so that later reports are dropped. It does nothing if fd is 0.
func reportDetached(fd int, ready json.RawMessage, err error) {
	if fd <= 0 {
		return
	}
	f := os.NewFile(uintptr(fd), "starter")
	if f == nil {
		return
	}
	defer f.Close()
	line := []byte(ready)
	if err != nil {
		e := capability.AsError(err)
		data, failed := json.Marshal(map[string]any{"error": e})
		if failed != nil {
			return
		}
		line = data
	}
	if len(line) > 0 {
		_, _ = f.Write(append(line, '\n'))
	}
}
