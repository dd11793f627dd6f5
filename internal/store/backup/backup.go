// Package backup copies a home into one file and restores a home from that file.
//
// # The content of a backup
//
// A backup is the state that a kill of the server at one moment would have left, which
// every start repairs. So it does not need a server, and a running server continues: while
// a lock keeps all commits out of the database, the ends of the audit segments are noted;
// then the database is copied as of that moment, the segments up to there, and all other
// files as they are. The backup contains everything acknowledged before, and the chain is
// never behind the database. Files that belong to the database (packages of extensions) are
// copied again if they changed meanwhile.
//
// # The file
//
// A backup is a gzipped tar archive with mode 0600, because it holds secrets. All names
// begin with junctor-backup-1/, where the number is the format. The files are below home/,
// and the last entry is manifest.json, which lists each entry in order with size, mode and
// SHA-256. That detects damage but not forgery, because a writer of the file can also write
// a manifest.
//
// A reader trusts nothing: it accepts only plain files and folders of a home, nothing twice,
// bounded in number, size and depth, all of it listed. [Restore] reads the archive once to
// check that before it writes. Then it fills a folder beside the home, verifies SQLite and
// the audit chain, and renames the folder, so a home is restored completely or not at all.
//
// # Files of other users
//
// The names of working folders may be in use already, in places where other users may write.
// Therefore only a folder that this package has marked and that the user owns is emptied.
// Programs of others write into the home, below the work folder of an extension and the
// folder of an upstream. An unreadable file there is reported, and does not fail a backup.
//
// [LeavesOut] lists the files that a backup omits, and the reasons.
package backup

import (
	"errors"
	"fmt"
	"io/fs"
	"path"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/core/audit"
)

// Reasons of the package's errors.
const (
	ReasonDamaged  = "backup_damaged"    // the file is damaged or is not a backup
	ReasonNewer    = "backup_newer"      // a later program made it
	ReasonExists   = "backup_exists"     // a file of that name is there
	ReasonOccupied = "home_not_empty"    // the place of the new home is not empty
	ReasonMounted  = "home_mounted"      // the empty folder is a mount point and cannot be replaced
	ReasonChanging = "home_changing"     // extensions were installed or removed during every attempt
	ReasonInTheWay = "folder_in_the_way" // the working folder exists and is not ours
	ReasonBusy     = "backup_running"    // another process does the same in the same folder
	ReasonNoHome   = "home_not_found"    // the folder does not contain a server's home
	ReasonNoRoom   = "not_enough_room"   // the disk is too small for the content of the file
)

const (
	format   = 1
	prefix   = "junctor-backup-"
	manifest = "manifest.json"
	database = "state/junctor.db"
)

func root() string { return fmt.Sprintf("%s%d/", prefix, format) }

// bounds holds the two bounds that tests reduce.
type bounds struct {
	files int
	bytes int64
}

func limits() bounds { return bounds{maxFiles, maxBytes} }

// Manifest is the last entry of an archive.
type Manifest struct {
	Format  int              `json:"format"`
	Version string           `json:"version"` // of the program that made it
	Created time.Time        `json:"created"`
	Schemas map[string]int64 `json:"schemas"` // of the database, by owner
	Audit   Chain            `json:"audit"`
	// Shared names the database outside of the home that gateways share, without a password.
	// It is "" if the home holds everything.
	Shared  string    `json:"shared,omitempty"`
	LeftOut []LeftOut `json:"left_out"`
	Files   []File    `json:"files"`
}

// Chain describes the state of the audit chain when it was copied.
type Chain struct {
	Records  uint64           `json:"records"`
	LastSeq  uint64           `json:"last_seq"`
	FirstBad *audit.BadRecord `json:"first_bad,omitempty"` // it was broken already
}

// LeftOut is a file or folder of a home that is not in a backup.
type LeftOut struct {
	Path string `json:"path"`
	Why  string `json:"why"`
}

// File is one entry. A folder's path ends in a slash, and it has neither size nor digest.
type File struct {
	Path   string      `json:"path"` // in the home
	Mode   fs.FileMode `json:"mode"` // permission bits
	Size   int64       `json:"size,omitempty"`
	SHA256 string      `json:"sha256,omitempty"`
	UID    int         `json:"uid,omitempty"` // of the files of an extension's own user
}

// LeavesOut lists what a home can contain and a backup omits. Paths are those of files and
// of folders with everything below them; the exceptions in keeps are included.
func LeavesOut() []LeftOut {
	return []LeftOut{
		{"run", "says what runs now; the two tokens in it are kept"},
		{"login.json", "the sign-in of a person at the command line"},
		{"logs", "copies of lines of audit/"},
		{"cache", "created again"},
		{"state/nats", "created again from the database"},
		{"state/junctor.db.before-upgrade", "the database before the last upgrade"},
		{"state/junctor.db.before-upgrade.unfinished", "the database before an upgrade that has not ended"},
		{"workspaces", "folders that agents work in: push what matters there"},
		{"agents", "sessions of agents and their recordings; what was done is kept"},
	}
}

func keeps() []string {
	return []string{"run/admin.token", "run/agent.token", "agents/swarm-history.jsonl"}
}

// passing matches files that are only of use to a running process.
var passing = regexp.MustCompile(`^state/junctor\.db((\.before-upgrade(\.tmp|\.unfinished)?)?(-wal|-shm|-journal)|\.before-upgrade\.tmp)$|^(node/)?(audit/)?(lock|head\.tmp)$|^(run/|state/|node/|(node/)?audit/)?\.(tmp|state\.json|key)-|^secrets/~|^blobs/sha256/\.new-|^node/sandbox\.json$`)

// belongs reports whether a path of a home is in a backup; why is the reason for an omission
// that a user may notice. Folders are in if they hold anything that is in.
func belongs(p string) (in bool, why string) {
	if passing.MatchString(p) {
		return false, ""
	}
	in = true
	for _, l := range LeavesOut() {
		if p == l.Path || strings.HasPrefix(p, l.Path+"/") {
			in = slices.ContainsFunc(keeps(), func(k string) bool { return p == k || strings.HasPrefix(k, p+"/") })
		}
		if p == l.Path {
			why = l.Why
		}
	}
	return in, why
}

// others reports whether foreign programs may write at a path: below the work folder of an
// extension, also one that is being changed or was removed, and below the folder of an
// upstream.
func others(p string) bool {
	parts := strings.Split(p, "/")
	return len(parts) > 1 && parts[0] == "upstreams" || len(parts) > 2 && parts[0] == "extensions" &&
		(parts[2] == "work" || parts[1][0] == '.')
}

// mode returns the permission bits of a file in a backup. Other users may read packages of
// extensions, and programs, because they run them; they may read nothing else.
func mode(p string, m fs.FileMode) fs.FileMode {
	top, _, _ := strings.Cut(p, "/")
	if slices.Contains([]string{"extensions", "tools", "bin"}, top) {
		return m & 0o755
	}
	return m & 0o700
}

// inHome checks the untrusted path of an entry. A folder's path may end in a slash.
func inHome(p string) error {
	name := strings.TrimSuffix(p, "/")
	switch {
	case len(name) > maxName, strings.Count(name, "/") > maxDepth:
		return fmt.Errorf("a name in it has more than %d bytes or %d levels", maxName, maxDepth)
	case !fs.ValidPath(name), name == ".", path.Clean(name) != name, strings.ContainsAny(name, "\\\x00\n\r"):
		return fmt.Errorf("the name %q leads out of a home", p)
	}
	if in, _ := belongs(name); !in {
		return fmt.Errorf("%q is nothing that a backup holds", p)
	}
	return nil
}

func damaged(err error) error {
	return capability.Errorf(capability.CodeInvalidInput, "backup", "this is not a whole backup: %w", err).
		With(ReasonDamaged, "nothing was changed; use another backup")
}

var errChanged = errors.New("a file changed while it was copied")
