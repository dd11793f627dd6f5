// Package canary is the program that tries to break out of the sandbox: some
// fifty forbidden acts, each of which is attempted and reports its result. The
// self-test and the attack tests run it. Acts are harmless where they succeed: they touch only victims
// made for them, and signal with 0.
package canary

// Outcomes of an act.
const (
	Held        = "held"          // the wall stood
	Broken      = "broken"        // it did not
	Unavailable = "not available" // it could not be tried here; Detail states why
)

// Secret is what every victim that can be read holds.
const Secret = "junctor canary: nobody inside may read this"

// Victims are things outside the sandbox, made for one round. An empty one
// leaves its acts out.
type Victims struct {
	File     string `json:"file,omitempty"`     // holds Secret; in a directory of its own
	Dir      string `json:"dir,omitempty"`      // where nothing may be made
	Package  string `json:"package,omitempty"`  // shown read-only, as seen inside
	PID      int    `json:"pid,omitempty"`      // a process of the server's user
	TCP      string `json:"tcp,omitempty"`      // a listener on the loopback address
	UDP      string `json:"udp,omitempty"`      //
	Socket   string `json:"socket,omitempty"`   // a pathname unix socket
	Abstract string `json:"abstract,omitempty"` // an abstract one, without the @
	Env      string `json:"env,omitempty"`      // a variable of the server's that may not be seen
	Internet bool   `json:"internet,omitempty"` // the run has a network: sockets are its right
	Spare    string `json:"spare,omitempty"`    // a directory inside that may be written to
}

// Result is what came of one act.
type Result struct {
	Act     string `json:"act"`
	Layer   string `json:"layer"` // the wall that is to stop it
	Outcome string `json:"outcome"`
	Detail  string `json:"detail,omitempty"`
}
