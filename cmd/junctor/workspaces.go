package main

import (
	"encoding/json"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
)

const workspacePath = "/api/workspace"

// workspacesCommand returns the commands about the workspaces of task agents.
func (a *app) workspacesCommand() *cobra.Command {
	type row struct {
		ID, Mode, Path, Branch, Label string
		Repo                          struct{ URL string }
		CreatedAt                     time.Time
	}
	list := &cobra.Command{
		Use: "list", Short: "List workspaces", Args: cobra.NoArgs,
		RunE: shows(a, workspacePath, func(list []row) error {
			var rows [][]string
			for _, w := range list {
				rows = append(rows, []string{w.ID, w.Mode, dash(w.Branch), dash(w.Repo.URL), when(w.CreatedAt), w.Path})
			}
			return a.table([]string{"ID", "MODE", "BRANCH", "REPOSITORY", "CREATED", "FOLDER"}, rows,
				"no workspace exists; create one with: junctor workspaces create REPO")
		}),
	}
	var base, branch, parent string
	create := &cobra.Command{
		Use: "create [REPO]", Short: "Create a workspace: clone a repository and make a branch", Args: cobra.MaximumNArgs(1),
		Long: `Create a workspace: clone a repository and make a branch. With --parent it is a further
branch beside that workspace, which shares its clone, and no REPO is given.`,
		Example: `  junctor workspaces create owner/name --base main
  junctor workspaces create --parent 0123456789ab --branch second`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			if len(args) == 1 {
				body["repo"] = args[0]
			}
			if parent != "" {
				body["useWorktree"], body["parentWorkspaceId"] = true, parent
			}
			setText(body, "baseBranch", base)
			setText(body, "branchName", branch)
			return a.call(cmd.Context(), http.MethodPost, workspacePath+"/provision", body, func(raw json.RawMessage) error {
				w, err := decode[row](raw)
				if err == nil {
					a.printf("%s\nbranch  %s\nfolder  %s\n", plainText(w.ID), plainText(w.Branch), plainText(w.Path))
				}
				return err
			})
		},
	}
	create.Flags().StringVar(&base, "base", "", "`BRANCH` branch to begin from (default the repository's own)")
	create.Flags().StringVar(&branch, "branch", "", "`BRANCH` name of the new branch")
	create.Flags().StringVar(&parent, "parent", "", "`ID` workspace whose clone to share, for a further branch beside it")
	var message, title, text, target string
	var draft, skip bool
	finalize := &cobra.Command{
		Use: "finalize ID", Short: "Finalize a workspace: commit, push and open a pull request", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			body := map[string]any{}
			setText(body, "commitMessage", message)
			setText(body, "prTitle", title)
			setText(body, "prBody", text)
			setText(body, "baseBranch", target)
			if draft {
				body["draft"] = true
			}
			if skip {
				body["skipPR"] = true
			}
			return a.call(cmd.Context(), http.MethodPost, workspacePath+"/"+url.PathEscape(args[0])+"/finalize", body,
				decoded(func(out struct {
					Text string
					Pull *struct{ URL string }
				},
				) error {
					a.printf("%s\n", plainText(out.Text))
					if out.Pull != nil {
						a.printf("%s\n", plainText(out.Pull.URL))
					}
					return nil
				}))
		},
	}
	finalize.Flags().StringVar(&message, "message", "", "`TEXT` message of the commit")
	finalize.Flags().StringVar(&title, "title", "", "`TEXT` title of the pull request")
	finalize.Flags().StringVar(&text, "body", "", "`TEXT` text of the pull request")
	finalize.Flags().StringVar(&target, "base", "", "`BRANCH` branch that the pull request is for (default the one it began from)")
	finalize.Flags().BoolVar(&draft, "draft", false, "open the pull request as a draft")
	finalize.Flags().BoolVar(&skip, "no-pull-request", false, "commit and push, and open no pull request")
	var force bool
	remove := &cobra.Command{
		Use: "remove ID", Short: "Remove a workspace", Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			path := workspacePath + "/" + url.PathEscape(args[0])
			if force {
				path += "?force=true"
			}
			return a.call(cmd.Context(), http.MethodDelete, path, nil, a.done("%s is removed\n", plainText(args[0])))
		},
	}
	remove.Flags().BoolVar(&force, "force", false, "also when work would be lost")
	return a.group("workspaces", "Manage workspaces: clones of repositories that task agents work in", list, create, finalize, remove)
}
