package sandbox

import (
	"os"
	"path/filepath"
	"slices"
	"sync"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/platform/sandbox/egress"
)

// Config configures a [Box]. The zero value works.
type Config struct {
	// Scratch is the directory in which the Box creates and removes temporary directories;
	// "" means the system's.
	Scratch string
	// ReadOnly are paths that every confined program may read (sandbox.extra_ro).
	ReadOnly []string
	// Private are paths that a program may never read: the home's state, logs, audit.
	Private []string
	// Off disables layers (see [Switchable]): name → the reason that status reports.
	Off map[string]string
	// CacheFile stores the self-test's result until the next boot; "" keeps it in memory only.
	CacheFile string
	// Spares is the number of helpers of each used kind that are started in advance, so that
	// a run need not wait for one: about 10 MiB each. If it is above 0, the owner must call
	// Close.
	Spares int
	// Resolver and Dialer are the egress proxy's; nil means the system's.
	Resolver egress.Resolver
	Dialer   egress.Dialer
}

// Box runs confined programs. It is safe for concurrent use. The main function of its binary
// must call [HelperMain] before anything else if [IsHelper] returns true.
type Box struct {
	cfg Config

	mu    sync.Mutex
	facts *Facts // the facts of this machine; nil before the probe

	shared system // the cached files of the machine for private roots
	spares spares
}

// NewForHome returns the sandbox of programs of a server. It never shows them the server's home, except
// to each its own folder. readOnly and off are those of the configuration.
func NewForHome(home string, readOnly, off []string) *Box {
	scratch := filepath.Join(home, "run")
	if os.Geteuid() == 0 { // programs run as a user without access to it
		scratch = ""
	}
	private := []string{home}
	if real, err := filepath.EvalSymlinks(home); err == nil {
		private = append(private, real)
	}
	return New(Config{ReadOnly: readOnly, Off: Without(off), Scratch: scratch, Private: private})
}

// New returns a Box. It defers all probes until they are needed.
func New(cfg Config) *Box { return &Box{cfg: cfg} }

// The first arguments with which this binary does not run a command: helperName makes it the
// helper of one confined run, canaryName the canary of the self-test.
const (
	helperName = "sandbox-helper"
	canaryName = "sandbox-canary"
)

// IsHelper reports whether this process was started as a part of the sandbox.
// argv is os.Args.
func IsHelper(argv []string) bool {
	return len(argv) > 1 && (argv[1] == helperName || argv[1] == canaryName)
}

// Facts are the machine's confinement features, found by trial runs.
type Facts struct {
	Tier     Tier              `json:"tier"` // the strongest that works
	Layers   []string          `json:"layers"`
	Missing  map[string]string `json:"missing,omitempty"` // layer → why it is not available
	Landlock int               `json:"landlock_abi"`
	Cgroup   string            `json:"cgroup"`                   // "v1", "v2" or ""
	Control  []string          `json:"controllers,omitempty"`    // writable ones
	Root     bool              `json:"root"`                     // the server is root
	UserNS   bool              `json:"user_namespaces"`          // used for T3
	NoT3     string            `json:"t3_unavailable,omitempty"` // why
	NoT2     string            `json:"t2_unavailable,omitempty"`
}

// Place returns where the program would run, without running it. Errors: unavailable, reason
// sandbox_unavailable, if the required tier is not available; denied, reason
// confirmation_required, if its network could not be filtered and that was not accepted.
func (b *Box) Place(c Confinement) (Placement, error) {
	facts := b.Facts()
	want := c.MinTier
	if want == 0 {
		want = T3
	}
	tier := facts.Tier
	if c.MaxTier != 0 && c.MaxTier < tier {
		tier = c.MaxTier
		if tier == T2 && facts.NoT2 != "" {
			tier = T1
		}
	}
	if tier < want {
		return Placement{}, unavailable(facts, tier, want)
	}
	return b.placement(facts, tier, c)
}

func unavailable(facts Facts, tier, want Tier) *capability.Error {
	why, remedy := facts.NoT3, "allow user namespaces on this machine, or run the server as root in a container that may make namespaces"
	if want == T2 {
		why, remedy = facts.NoT2, "use a kernel with Landlock (5.13 or newer) and seccomp, and switch Landlock on (lsm=landlock,…)"
	}
	if why == "" {
		why, remedy = "a stronger one is excluded", "raise the tier this run is allowed to use"
	}
	return capability.Errorf(capability.CodeUnavailable, "sandbox.place", "the sandbox reaches tier %s and this needs %s: %s", tier, want,
		why).
		With("sandbox_unavailable", remedy+"; or lower sandbox.min_tier for this extension").
		Detail("tier", tier.String()).Detail("required", want.String()).Detail("missing", facts.Missing)
}

// placement returns the layers, network and paths of a run at the tier. It returns
// confirmation_required if the network would be unfiltered and c does not accept that.
func (b *Box) placement(facts Facts, tier Tier, c Confinement) (Placement, error) {
	p := Placement{Tier: tier, Network: c.Network, Work: c.Work, Package: c.Package, Missing: map[string]string{}}
	if p.Network == "" {
		p.Network = NetworkNone
	}
	for layer, why := range facts.Missing {
		p.Missing[layer] = why
	}
	only := func(min Tier, layer string) {
		if _, gone := p.Missing[layer]; gone {
			return
		}
		if tier < min {
			p.Missing[layer] = "not at tier " + tier.String()
			return
		}
		p.Layers = append(p.Layers, layer)
	}
	only(T1, LayerHygiene)
	only(T2, LayerPrivileges)
	only(T2, LayerRlimits)
	only(T2, LayerSeccomp)
	only(T2, LayerLandlock)
	only(T2, LayerCgroup)
	if facts.Root && c.ServerUser {
		p.Missing[LayerUser] = "the run keeps the server's user"
	} else if facts.Root {
		only(T2, LayerUser)
	} else {
		only(T3, LayerUser)
	}
	for _, layer := range []string{LayerNamespaces, LayerRoot, LayerProc, LayerNetwork} {
		only(T3, layer)
	}
	if p.Network == NetworkRaw {
		p.Layers = without(p.Layers, LayerNetwork)
		p.Missing[LayerNetwork] = "the run was given the machine's network"
	}
	if tier == T3 {
		p.Work, p.Package = inside(c)
		return p, nil
	}
	// Below T3 only the system call filter limits the network: all internet sockets or none.
	if p.Network == NetworkProxy || p.Network == NetworkNone && tier == T1 {
		p.Network = NetworkUnfiltered
	}
	if p.Network == NetworkUnfiltered && !c.AllowUnfiltered {
		return Placement{}, capability.Errorf(capability.CodeApprovalRequired, "sandbox.place",
			"at tier %s the network cannot be limited to the hosts that were declared", tier).
			With("confirmation_required", "confirm that it may reach every host, or run where tier T3 works")
	}
	return p, nil
}

func without(list []string, name string) []string {
	var kept []string
	for _, s := range list {
		if s != name {
			kept = append(kept, s)
		}
	}
	return kept
}

// Facts returns the machine's confinement features. The first call probes them, which takes
// some milliseconds; later calls return the stored result.
func (b *Box) Facts() Facts {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.facts == nil {
		f := b.probe()
		b.facts = &f
	}
	return *b.facts
}

// homeCredentials returns the names that make a directory one that programs may not see as a whole:
// a user's home.
func homeCredentials() []string {
	return []string{".ssh", ".gnupg", ".aws", ".kube", ".netrc", ".config/gcloud", ".password-store", ".mozilla"}
}

// Credentials returns the names of well-known places of credentials that a directory contains.
func Credentials(dir string) []string {
	return slices.DeleteFunc(homeCredentials(), func(name string) bool {
		_, err := os.Lstat(filepath.Join(dir, name))
		return err != nil
	})
}
