package main

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/junctor-run/junctor/internal/base/text"
	"github.com/junctor-run/junctor/internal/setup/setupserve"
)

// printUnreached prints which folders the moved servers name and their programs cannot use, and the command
// that gives them, with when to run it. If when is empty, a question about them follows instead.
func (a *app) printUnreached(preview setupserve.Result, when string) {
	if a.json {
		return
	}
	for _, server := range slices.Sorted(maps.Keys(preview.Unreached)) {
		if preview.Moved[server] == "" {
			continue // it stays in the client, which printLeft shows
		}
		give := preview.Folders[server]
		offered := false
		for _, u := range preview.Unreached[server] {
			verb := "cannot reach"
			if u.Readable {
				verb = "may only read"
			}
			follows := ""
			if when == "" {
				follows = "; a question about it follows"
			}
			a.printf("  warning: %s %s %s (%s)%s\n", plainText(server), verb, plainText(u.Folder), plainText(u.From), follows)
			switch {
			case u.Package:
				give.ReadOnly, offered = append(slices.Clone(give.ReadOnly), u.Folder), true
			default:
				give.ReadOnly = slices.DeleteFunc(slices.Clone(give.ReadOnly), func(dir string) bool { return under(dir, u.Folder) })
				give.ReadWrite, offered = append(slices.Clone(give.ReadWrite), u.Folder), true
			}
		}
		if offered && when != "" {
			line := "junctor mcp confine " + text.ShellWord(preview.Moved[server])
			for _, dir := range give.ReadWrite {
				line += " --rw " + text.ShellWord(dir)
			}
			for _, dir := range give.ReadOnly {
				line += " --ro " + text.ShellWord(dir)
			}
			a.printf("    if it may use this, %s (--ro in place of --rw if it needs to read only): %s\n", when, plainText(line))
		}
	}
}

// askFolders asks for each folder that a moved server names and its program cannot use whether it may.
func (a *app) askFolders(ctx context.Context, preview setupserve.Result) (map[string]setupserve.Folders, error) {
	given := make(map[string]setupserve.Folders)
	for _, server := range slices.Sorted(maps.Keys(preview.Unreached)) {
		if preview.Moved[server] == "" {
			continue
		}
		give := given[server]
		for _, u := range preview.Unreached[server] {
			verb := "read and change"
			if u.Package {
				verb = "read"
			}
			answer, err := a.ask(ctx, fmt.Sprintf("May %s %s the files in %s (%s)? [y/N] ", server, verb, u.Folder, u.From))
			switch {
			case err != nil:
				return nil, err
			case !isYes(strings.TrimSpace(answer)):
			case u.Package:
				give.ReadOnly = append(give.ReadOnly, u.Folder)
			default:
				give.ReadWrite = append(give.ReadWrite, u.Folder)
			}
		}
		given[server] = give
	}
	return given, nil
}

// under reports whether a folder is another one or lies in it.
func under(dir, parent string) bool { return dir == parent || strings.HasPrefix(dir, parent+"/") }
