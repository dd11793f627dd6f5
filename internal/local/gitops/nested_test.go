package gitops

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/junctor-run/junctor/internal/platform/gitcmd"
	"github.com/junctor-run/junctor/internal/platform/sandbox"
)

// nest adds a repository inside of repo to its index, and another one inside of that. Their filter leaves a
// file.
func nest(t *testing.T, f *fixture, gitmodules string) (ran func() bool) {
	t.Helper()
	canary := filepath.Join(f.base, "repo/n/ran")
	made := func(dir, more string) {
		f.write(dir+"/g.txt", "one\n")
		f.plain(dir, "init", "-q")
		f.plain(dir, "-c", "advice.addEmbeddedRepo=false", "add", "g.txt", more)
		f.plain(dir, "commit", "-qm", "nested")
		f.plain(dir, "config", "filter."+filepath.Base(dir)+".clean", "touch "+canary+"; cat")
		f.write(dir+"/.git/info/attributes", "* filter="+filepath.Base(dir)+"\n")
	}
	made("repo/n/deep", "g.txt")
	made("repo/n", "deep")
	if gitmodules != "" {
		f.write("repo/.gitmodules", gitmodules)
		f.plain("repo", "add", ".gitmodules")
	}
	f.plain("repo", "-c", "advice.addEmbeddedRepo=false", "add", "n")
	f.plain("repo", "commit", "-qm", "outer")
	f.write("repo/n/g.txt", "two\n") // with the same size, git has to read it
	f.write("repo/n/deep/g.txt", "two\n")
	f.write("repo/dir/b.txt", "changed\n")
	_ = os.Remove(canary)
	return func() bool {
		_, err := os.Lstat(canary)
		return err == nil
	}
}

func TestGitDoesNotRunWhatARepositoryInsideConfigures(t *testing.T) {
	t.Parallel()
	named := "[submodule \"n\"]\n\tpath = n\n\turl = ./n\n\tignore = none\n"
	for name, cfg := range map[string]gitcmd.Config{
		"confined": {Walls: sandbox.New(sandbox.Config{})}, "unconfined": {},
	} {
		for kind, gitmodules := range map[string]string{"named": named, "unnamed": "", "named in the index": named} {
			t.Run(name+", "+kind, func(t *testing.T) {
				t.Parallel()
				f := setupWith(t, cfg, false)
				ran := nest(t, f, gitmodules)
				if kind == "named in the index" {
					if err := os.Remove(filepath.Join(f.base, "repo/.gitmodules")); err != nil {
						t.Fatalf("Remove = %v, want no error", err)
					}
				}
				for _, args := range []string{
					`["status"]`, `["diff"]`, `["describe","--always"]`, `["diff-files"]`, `["diff-index","HEAD"]`, `["commit","-m","x","n"]`,
					`["add","-A"]`, `["add","-u"]`, `["add","n"]`, `["add","-n","."]`, `["stash"]`, `["stash","pop"]`, `["update-index","n"]`,
					`["rm","--cached","-n","n"]`, `["commit","-am","x"]`, `["checkout","-b","y"]`, `["reset","--hard"]`, `["mv","n","m"]`, `["rm","m"]`,
				} {
					if err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil); err != nil {
						t.Errorf("%s = %v, want no error", args, err)
					}
					if ran() {
						t.Fatalf("%s ran the program of the repository inside", args)
					}
				}
			})
		}
	}
}

// The index of a repository whose working tree is elsewhere names other files than those beside its .git.
func TestARepositoryInsideThatMovesItsWorkingTreeIsRefused(t *testing.T) {
	t.Parallel()
	f := setupWith(t, gitcmd.Config{}, false)
	f.write("repo/n/g.txt", "one\n")
	f.plain("repo/n", "init", "-q")
	f.write("repo/n/W/deep/g.txt", "one\n")
	f.plain("repo/n/W/deep", "init", "-q")
	f.plain("repo/n/W/deep", "add", "g.txt")
	f.plain("repo/n/W/deep", "commit", "-qm", "deep")
	f.plain("repo/n", "config", "core.worktree", "../W")
	f.plain("repo/n/W", "-c", "advice.addEmbeddedRepo=false", "add", "deep")
	f.plain("repo/n/W", "commit", "-qm", "n")
	f.plain("repo", "-c", "advice.addEmbeddedRepo=false", "add", "n")
	canary := filepath.Join(f.base, "ran")
	f.plain("repo/n/W/deep", "config", "filter.x.clean", "touch "+canary+"; cat")
	f.write("repo/n/W/deep/.git/info/attributes", "* filter=x\n")
	f.write("repo/n/W/deep/g.txt", "two\n")
	f.write("repo/n/W/.gitmodules", "[submodule \"deep\"]\n\tpath = deep\n\turl = ./deep\n\tignore = none\n")
	for _, args := range []string{`["add","-A"]`, `["add","-u"]`, `["stash"]`} {
		err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil)
		if err == nil || err.Reason != "security_violation" {
			t.Errorf("%s = %v, want security_violation", args, err)
		}
		if _, err := os.Lstat(canary); err == nil {
			t.Fatalf("%s ran the program of the innermost repository", args)
		}
	}
	f.plain("repo", "status") // without this the trap might be blunt
	if _, err := os.Lstat(canary); err != nil {
		t.Errorf("a plain git status did not run the program: %v", err)
	}
}

// A repository that lies in the working tree comes into the index with the branch that is switched to.
func TestASwitchRunsNothingOfTheRepositoriesThatItBrings(t *testing.T) {
	t.Parallel()
	f := setupWith(t, gitcmd.Config{}, false)
	ran := nest(t, f, "")
	f.write("repo/.gitmodules", "[submodule \"n\"]\n\tpath = n\n\turl = ./n\n\tignore = none\n")
	f.plain("repo", "checkout", "-q", "-b", "other")
	f.plain("repo", "-c", "core.fsmonitor=false", "update-index", "--add", ".gitmodules")
	f.plain("repo", "commit", "-qm", "other")
	f.plain("repo", "checkout", "-q", "-b", "bare")
	f.plain("repo", "update-index", "--force-remove", "n", ".gitmodules")
	f.plain("repo", "commit", "-qm", "bare")
	for _, name := range []string{"repo/.gitmodules", "repo/n/ran"} {
		_ = os.Remove(filepath.Join(f.base, name))
	}
	for _, args := range []string{
		`["checkout","other"]`, `["checkout","bare"]`, `["switch","other"]`, `["switch","bare"]`, `["merge","other"]`, `["stash"]`,
		`["cherry-pick","-x","-m","1","other"]`, `["cherry-pick","other"]`, `["revert","--no-edit","HEAD"]`,
		`["stash","pop"]`,
	} {
		if err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil); err != nil {
			t.Errorf("%s = %v, want no error", args, err)
		}
		if ran() {
			t.Fatalf("%s ran the program of the repository inside", args)
		}
	}
	for _, args := range []string{
		`["checkout","--no-quiet","other"]`, `["switch","--no-q","other"]`, `["stash","pop","--no-quiet"]`, `["format-patch","-1","--no-stdout"]`,
		`["cherry-pick","-e","other"]`, `["revert","-e","HEAD"]`, `["cherry-pick","other","HEAD"]`, `["cherry-pick","HEAD..other"]`,
		`["cherry-pick","--all"]`, `["revert","-xe","HEAD"]`, `["cherry-pick","-m","1","other","bare"]`, `["cherry-pick","other^!"]`,
		`["checkout","-m","other"]`, `["checkout","--merge","other"]`, `["switch","--conflict=diff3","other"]`,
		`["checkout","--c=diff3","other"]`, `["merge","--autostash","other"]`,
	} {
		if err := f.call("git.command.run", `{"cwd":"repo","args":`+args+`}`, nil); err == nil || err.Reason != "security_violation" {
			t.Errorf("%s = %v, want security_violation", args, err)
		}
	}
}
