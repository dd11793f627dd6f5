package sandbox

import (
	"fmt"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// Tier is a level of confinement (capability-runner). Higher is stronger; every tier has
// at least one layer.
type Tier int

// The tiers.
const (
	T1 Tier = 1 // guarded: process hygiene only
	T2 Tier = 2 // confined: Landlock, seccomp, limits, subreaper; no namespaces
	T3 Tier = 3 // isolated: T2's layers, namespaces and a private root
)

func (t Tier) String() string { return fmt.Sprintf("T%d", int(t)) }

// MarshalText implements [encoding.TextMarshaler], for example "T3".
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (t *Tier) UnmarshalText(text []byte) error {
	switch string(text) {
	case "T1", "t1":
		*t = T1
	case "T2", "t2":
		*t = T2
	case "T3", "t3":
		*t = T3
	default:
		return fmt.Errorf("%q is not a sandbox tier: T1, T2 or T3", text)
	}
	return nil
}

// Network is the part of the network that a confined program may reach.
type Network string

// The networks. Unfiltered is only reported: it is the effect of "proxy" below T3, and of
// "none" at T1.
const (
	NetworkNone       Network = "none"
	NetworkProxy      Network = "proxy" // the hosts of Confinement.Egress, over HTTP
	NetworkRaw        Network = "raw"   // the machine's own network
	NetworkUnfiltered Network = "unfiltered"
)

// Confinement configures how a program is confined. The zero value requires T3, without
// network and package, and with only the temporary directory writable.
type Confinement struct {
	// MinTier is the weakest tier at which the program may run; 0 means T3.
	MinTier Tier
	// MaxTier is the strongest tier to use; 0 means unlimited.
	MaxTier Tier

	// Work is the run's work directory, an absolute real path, and the program's initial
	// directory. If the server is root, the directory must belong to the run alone, because
	// it is given to UID. WorkReadOnly makes it read-only.
	Work         string
	WorkReadOnly bool
	// Package is a directory that the program may read, at T3 under another path
	// ([Placement]). ReadOnly are further readable paths, at their own names.
	Package  string
	ReadOnly []string

	// ReadWrite are directories that the program may change, at their own names. They are
	// checked like ReadOnly and never given to UID, so their modes must permit the access.
	ReadWrite []string
	// OwnPath shows Work at its own path at T3 as well, and lets the program start in a
	// directory of ReadOnly or ReadWrite.
	OwnPath bool
	// Exact is for directories of a user that a program could have exchanged. Work is never given to UID, so
	// its modes must permit the access. At T3 the paths of ReadOnly and ReadWrite must not contain symbolic
	// links when they are shown; at T2 that is not certain, so name only those there that no program can exchange.
	Exact bool
	// Home makes Work the program's home across runs: HOME is Work as the program sees it, or the
	// temporary directory if the program's user cannot reach Work by its path (at T2, below
	// a directory closed to it). A HOME in Spec.Env takes precedence. If the user of the program
	// has changed, the content of Work is given to the new one too.
	Home bool

	// Bare hides the whole machine: all system directories, files and devices. It is for
	// a program that does not need them, such as a static binary of junctor.
	Bare bool

	Network Network // "" means none
	// Egress is the policy of NetworkProxy.
	Egress egress.Policy
	// OnEgress is called with every decision, from the proxy's goroutines. It may be nil.
	OnEgress func(egress.Decision)
	// AllowUnfiltered accepts that a tier below T3 cannot filter the network that the
	// program was promised. It is set after a person has confirmed that.
	AllowUnfiltered bool

	Limits Limits
	// UID and GID are the user and group of the program if the server is root; 0 means
	// [DefaultUID]. Two extensions that share them can reach each other's
	// processes at T2.
	UID, GID int
	// ServerUser runs the program as the server's own user, also if that is root, who has no
	// capabilities then. It is for files that only that user can change.
	ServerUser bool
}

// Placement describes where a program would run and what it would see. Use it to build
// arguments and variables that name paths.
type Placement struct {
	Tier    Tier    `json:"tier"`
	Network Network `json:"network"`
	// Layers are the active layers, Missing the inactive ones with the reasons.
	Layers  []string          `json:"layers"`
	Missing map[string]string `json:"missing,omitempty"`
	// Work and Package are the paths as the program sees them.
	Work    string `json:"work"`
	Package string `json:"package,omitempty"`
}

// Usage is the resource usage of a confined run, over its whole tree.
type Usage struct {
	User, System time.Duration
	MaxRSS       int64 // bytes of the largest process
	MaxMemory    int64 // bytes of the whole tree; 0 without a control group
}

// The names of the layers in status and results.
const (
	LayerUser       = "user"       // a user other than the server's, or a user namespace of one user
	LayerNamespaces = "namespaces" // mount, pid, net, ipc, uts
	LayerRoot       = "root"       // the private root
	LayerNetwork    = "network"    // an empty network namespace
	LayerProc       = "proc"       // a fresh /proc
	LayerPrivileges = "privileges" // no capabilities, no_new_privs
	LayerLandlock   = "landlock"   //
	LayerSeccomp    = "seccomp"    //
	LayerRlimits    = "rlimits"    //
	LayerCgroup     = "cgroup"     // the kernel limits memory and processes of the whole tree
	LayerHygiene    = "hygiene"    // environment, descriptors, group kill, bounded output and disk
)

// Without returns a Config.Off for layers that the operator's configuration disables.
func Without(layers []string) map[string]string {
	why := make(map[string]string, len(layers))
	for _, layer := range layers {
		why[layer] = "by sandbox.off of this server's configuration"
	}
	return why
}

// Switchable returns the layers that Config.Off can disable.
func Switchable() []string {
	return []string{LayerNamespaces, LayerRoot, LayerNetwork, LayerProc, LayerLandlock, LayerSeccomp, LayerCgroup}
}
