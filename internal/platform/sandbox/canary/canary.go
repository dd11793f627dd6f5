// Package canary is the program that tries to break out of the sandbox: it attempts many
// forbidden acts and reports the result of each. The self-test and the attack tests run it.
// Acts that succeed are harmless: they change only victims created for them.
package canary

// The outcomes of an act.
const (
	Held        = "held"          // the act failed, so the layer works
	Broken      = "broken"        // the act succeeded
	Unavailable = "not available" // the act could not be attempted here; Detail states why
)

// Secret is the content of every victim that can be read.
const Secret = "junctor canary: nobody inside may read this"

// ActHide is the act by which a program's open files could not be counted.
const ActHide = "hide its open files"

// Acts that are known to succeed without namespaces.
const (
	ActConnect = "connect to an outside unix socket"
	ActSeePath = "see whether an outside path exists"
	ActUseUp   = "use up the inotify instances of the server's user"
)

// Victims are objects outside the sandbox, created for one round. An empty field omits the
// acts on it.
type Victims struct {
	File     string `json:"file,omitempty"`     // holds Secret; in a directory of its own
	Dir      string `json:"dir,omitempty"`      // a directory in which the program must not create files
	Package  string `json:"package,omitempty"`  // shown read-only, as seen inside
	PID      int    `json:"pid,omitempty"`      // a process of the server's user
	TCP      string `json:"tcp,omitempty"`      // a listener on the loopback address
	UDP      string `json:"udp,omitempty"`      //
	Socket   string `json:"socket,omitempty"`   // a pathname unix socket
	Abstract string `json:"abstract,omitempty"` // an abstract one, without the @
	Env      string `json:"env,omitempty"`      // name of a variable of the server that the program must not see
	Internet bool   `json:"internet,omitempty"` // the run has a network, so it may create sockets
	IPC      *IPC   `json:"ipc,omitempty"`      // System V objects that every user may use
	Spare    string `json:"spare,omitempty"`    // a directory inside that may be written to
	UID      int    `json:"uid"`                // the server's user
}

// IPC holds the ids of System V objects of the server's machine.
type IPC struct {
	Memory     int `json:"memory"`
	Semaphores int `json:"semaphores"`
	Messages   int `json:"messages"`
}

// Shown is the name of a file in the package that the program may read and nothing else.
const Shown = "shown"

// Result is the outcome of one act.
type Result struct {
	Act     string `json:"act"`
	Layer   string `json:"layer"` // the layer that must prevent it
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}
