package extension

// This file writes a new extension for its author: a complete small example that can be
// installed unchanged.

import (
	"embed"
	"errors"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"

	"github.com/junctor-run/junctor/capability"
)

//go:embed template
var template embed.FS

// Scaffold writes the folder dir/<id> and returns its path. The id is category.name; a
// name without a dot becomes tools.name. The part after the last dot is the command.
// Errors: invalid_input for an invalid name; conflict if the folder exists. reserved
// reports command names that belong to the server; it may be nil.
func Scaffold(dir, name string, reserved func(string) bool) (string, error) {
	const op = "extensions.new"
	id := name
	if !strings.Contains(id, ".") {
		id = "tools." + id
	}
	last := id[strings.LastIndexByte(id, '.')+1:]
	command := strings.Trim(strings.ToLower(last), "_-")
	if !ValidID(id) || !ValidCommandName("/"+command) {
		return "", capability.Errorf(capability.CodeInvalidInput, op, "%.130q cannot be an extension's name", name).With(ReasonManifest,
			"use category.name, such as tools.weather, in letters, digits, - and _")
	}
	if reserved != nil && reserved(command) {
		return "", capability.Errorf(capability.CodeInvalidInput, op, "/%s belongs to the server", command).With(ReasonReserved,
			"choose another name")
	}
	to := filepath.Join(dir, id)
	if err := os.Mkdir(to, 0o755); err != nil {
		if errors.Is(err, fs.ErrExist) {
			return "", capability.Errorf(capability.CodeConflict, op, "there is a %s already", id).With("exists",
				"choose another name, or remove it")
		}
		return "", capability.Wrap(capability.CodeFailed, op, "the folder cannot be made here", err)
	}
	fill := strings.NewReplacer("{{id}}", id, "{{command}}", command, "{{title}}", strings.ToUpper(last[:1])+last[1:])
	err := fs.WalkDir(template, "template", func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == "template" {
			return err
		}
		at := filepath.Join(to, filepath.FromSlash(strings.TrimPrefix(p, "template/")))
		if d.IsDir() {
			return os.Mkdir(at, 0o755)
		}
		data, err := template.ReadFile(path.Clean(p))
		if err != nil {
			return err
		}
		return os.WriteFile(at, []byte(fill.Replace(string(data))), 0o644)
	})
	if err != nil {
		return "", errors.Join(capability.Wrap(capability.CodeFailed, op, "the files cannot be written here", err), os.RemoveAll(to))
	}
	return to, nil
}
