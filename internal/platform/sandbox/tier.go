package sandbox

import (
	"fmt"
	"time"

	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// Tier says how strongly a program is confined (capability-runner). Higher is
// stronger; there is no tier without any wall.
type Tier int

// The tiers.
const (
	T1 Tier = 1 // guarded: process hygiene only
	T2 Tier = 2 // confined: Landlock, seccomp, limits, subreaper; no namespaces
	T3 Tier = 3 // isolated: namespaces and a private root beside them
)

func (t Tier) String() string { return fmt.Sprintf("T%d", int(t)) }

// MarshalText spells a tier as people read it: "T3".
func (t Tier) MarshalText() ([]byte, error) { return []byte(t.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (t *Tier) UnmarshalText(text []byte) error {
	switch string(text) {
	case "T1", "t1":
		*t = T1
	case "T2", "t2":
		*t = T2
	case "T3", "t3":
		*t = T3
	default:
		return fmt.Errorf("%q is no sandbox tier: T1, T2 or T3", text)
	}
	return nil
}

// Network says what a confined program may reach.
type Network string

// The networks. Unfiltered is only ever reported: it is what "proxy" comes to
// below T3, and what "none" comes to at T1.
const (
	NetworkNone       Network = "none"
	NetworkProxy      Network = "proxy" // the hosts of Confinement.Egress, over HTTP
	NetworkRaw        Network = "raw"   // the machine's own network
	NetworkUnfiltered Network = "unfiltered"
)

// Confinement is what a program is put behind. The zero value demands T3 and
// gives no network, no package and nothing to write but the temporary directory.
type Confinement struct {
	// MinTier is the tier below which nothing runs; 0 means T3.
	MinTier Tier
	// MaxTier is the strongest tier to use; 0 means the best there is.
	MaxTier Tier

	// Work is the run's work directory, an absolute real path; the program starts
	// there. When the server is root, it must be its own: the directory is given
	// to UID. WorkReadOnly keeps it from being changed.
	Work         string
	WorkReadOnly bool
	// Package is shown read-only, ReadOnly too, at the same paths.
	Package  string
	ReadOnly []string

	// Bare shows nothing of the machine: no system directories, files or devices.
	// It is for a program that needs none, such as a static binary of our own.
	Bare bool

	Network Network // "" means none
	// Egress decides about every connection of NetworkProxy.
	Egress egress.Policy
	// OnEgress hears every decision, from the proxy's goroutines; may be nil.
	OnEgress func(egress.Decision)
	// AllowUnfiltered accepts that a tier below T3 cannot filter the network the
	// program was promised: somebody was asked.
	AllowUnfiltered bool

	Limits Limits
	// UID and GID are what the program runs as when the server is root; 0 means
	// [DefaultUID]. Two extensions that share them can reach each other's
	// processes at T2.
	UID, GID int
}

// DefaultUID is the user and group of confined programs when the server is root
// and names no other.
const DefaultUID = 63120

// Placement says where a program would run and what it would see. Arguments and
// variables that name paths are built with it.
type Placement struct {
	Tier    Tier    `json:"tier"`
	Network Network `json:"network"`
	// Layers are the walls that stand, Missing those that do not and why.
	Layers  []string          `json:"layers"`
	Missing map[string]string `json:"missing,omitempty"`
	// Work and Package are the paths as the program sees them.
	Work    string `json:"work"`
	Package string `json:"package,omitempty"`
}

// Usage is what a confined run used, over its whole tree.
type Usage struct {
	User, System time.Duration
	MaxRSS       int64 // bytes of the largest process
	MaxMemory    int64 // bytes of the whole tree, where a control group counts
}

// The walls, as status and results name them.
const (
	LayerUser       = "user"       // another user than the server's, or a user namespace of one user
	LayerNamespaces = "namespaces" // mount, pid, net, ipc, uts
	LayerRoot       = "root"       // the private root
	LayerNetwork    = "network"    // an empty network namespace
	LayerProc       = "proc"       // a fresh /proc
	LayerPrivileges = "privileges" // no capabilities, no_new_privs
	LayerLandlock   = "landlock"   //
	LayerSeccomp    = "seccomp"    //
	LayerRlimits    = "rlimits"    //
	LayerCgroup     = "cgroup"     // memory and processes of the whole tree held by the kernel
	LayerHygiene    = "hygiene"    // environment, descriptors, group kill, bounded output
)

// Without is Config.Off for walls that the operator's configuration takes away.
func Without(layers []string) map[string]string {
	why := make(map[string]string, len(layers))
	for _, layer := range layers {
		why[layer] = "by sandbox.off of this server's configuration"
	}
	return why
}

// Switchable are the walls that Config.Off can take away; the others cost nothing
// and are on every machine.
func Switchable() []string {
	return []string{LayerNamespaces, LayerRoot, LayerNetwork, LayerProc, LayerLandlock, LayerSeccomp, LayerCgroup}
}
