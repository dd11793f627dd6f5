//go:build linux

// Package jail is the sandbox's helper: the code that runs when the server's binary is
// started again as the helper of one run (capability-runner). The helper builds
// the private root and an empty network, starts the program in it with
// every layer of the job, watches its limits, reaps its children and reports
// over a socket. At tier T3 it is process 1 of its own pid namespace, so that the kernel
// kills all processes when it ends; at T2 it is the subreaper of the tree, and ends last.
//
// The layers are applied on one locked thread, from which the program is then
// started, so that the program inherits them and the helper's other threads keep the rights
// to watch and to kill.
package jail

import "time"

// Paths in the private root of tier T3.
const (
	WorkDir    = "/job"      // the run's work directory
	PackageDir = "/ext"      // the extension's package, read-only
	TempDir    = "/tmp"      // private, removed with the run
	ToolDir    = "/run/tool" // a program from elsewhere
)

// ProxyPort is the port of the egress proxy on the loopback address of the run's own network
// namespace, where it is always free.
const ProxyPort = 3128

// ControlFD is the only descriptor of the helper at its start besides the standard
// three: a packet socket, which receives commands and sends events. CommandJob includes
// the program's three streams, the Job as JSON in an anonymous file, and the handles
// listed by the job, in the order of their fields.
const ControlFD = 3

// Mount is a file or directory of the machine that is mounted in the private root, read-only
// unless Write or Device is set.
type Mount struct {
	Source string `json:"s"` // real path: no symbolic links in it
	Target string `json:"t"`
	// Dev and Ino identify the verified file of Source; 0 skips the check.
	Dev    uint64 `json:"d,omitempty"`
	Ino    uint64 `json:"i,omitempty"`
	File   bool   `json:"f,omitempty"` // not a directory
	Write  bool   `json:"w,omitempty"`
	Device bool   `json:"v,omitempty"` // a device node, which must remain one
}

// Room is the part of a private root that is the same for every job.
type Room struct {
	Mounts   []Mount           `json:"mounts"`
	Links    map[string]string `json:"links"` // symbolic links: from → to
	SkipProc bool              `json:"skip_proc,omitempty"`
}

// Rule permits access to a path and everything beneath it (Landlock): by default reading and
// executing.
type Rule struct {
	Path   string `json:"p"`
	Write  bool   `json:"w,omitempty"`
	Device bool   `json:"v,omitempty"` // reading and writing, but not creating files
}

// Limits bound one run; zero means unlimited.
type Limits struct {
	Memory    int64         `json:"mem,omitempty"`   // bytes of the whole tree, watched here
	AddrSpace int64         `json:"as,omitempty"`    // bytes of address space of each process
	Processes int           `json:"procs,omitempty"` // processes and threads
	CPU       time.Duration `json:"cpu,omitempty"`   // of each process by the kernel, of the tree watched here
	FileSize  int64         `json:"fsize,omitempty"` // bytes
	OpenFiles int           `json:"files,omitempty"`
	Disk      int64         `json:"disk,omitempty"` // bytes used in the work directory, watched here
	Temp      int64         `json:"tmp,omitempty"`  // bytes of the private temporary directory: held by the kernel at T3, else watched here
}

// Job describes the run for the helper.
type Job struct {
	Path string   `json:"path"` // of the program, as it is seen inside
	Args []string `json:"args"` // with the program's name first
	Env  []string `json:"env"`
	Dir  string   `json:"dir"` // as seen inside; "" means the work directory's handle
	// ToolDev and ToolIno identify the verified program; 0 skips the check.
	ToolDev uint64 `json:"tool_dev,omitempty"`
	ToolIno uint64 `json:"tool_ino,omitempty"`

	// HasWork is true if the message includes the work directory's handle (at T2 without a
	// work directory, the temporary directory's).
	HasWork bool `json:"has_work,omitempty"`
	// ToolHandle executes the program's handle in the message instead of Path, which the
	// program's user may not be able to reach below T3.
	ToolHandle bool `json:"tool_handle,omitempty"`
	// ToolByPath executes Path by its name, because an interpreter opens it again.
	ToolByPath bool `json:"tool_by_path,omitempty"`
	// Self executes the helper's own binary in place of Path.
	Self bool `json:"self,omitempty"`
	// Extra is the number of handles in the message that become the program's descriptors 3, 4, ….
	Extra int `json:"extra,omitempty"`

	// WorkDir is the path of the work directory in the private root of T3.
	WorkDir string `json:"work_dir,omitempty"`
	// TempDir is the temporary directory if it is not part of a private root.
	TempDir string `json:"temp_dir,omitempty"`

	Isolate bool `json:"isolate"` // this process is 1 of new namespaces
	// Room is the part of the private root that is independent of the job; nil if it was built
	// before the job arrived (CommandRoom).
	Room   *Room             `json:"room,omitempty"`
	Mounts []Mount           `json:"mounts,omitempty"`
	Files  map[string]string `json:"files,omitempty"` // small files to create: path → content

	// Drop changes to UID and GID, without supplementary groups.
	Drop bool `json:"drop,omitempty"`
	UID  int  `json:"uid,omitempty"`
	GID  int  `json:"gid,omitempty"`

	Filter   bool   `json:"filter"` // install the system call filter
	Internet bool   `json:"internet,omitempty"`
	Landlock int    `json:"landlock,omitempty"` // the interface version to use; 0 for none
	Rules    []Rule `json:"rules,omitempty"`
	// OpenTCP leaves TCP to the other layers. Otherwise Landlock permits only ProxyPort, or
	// nothing without a proxy.
	OpenTCP bool `json:"open_tcp,omitempty"`
	Proxy   bool `json:"proxy,omitempty"` // create the proxy's listener and send it to the server

	Limits Limits `json:"limits"`
	// ExtraProcesses is added to the process limit: the processes that already run as the
	// same user and are counted with the program.
	ExtraProcesses int `json:"extra_procs,omitempty"`
}

// Kinds of events.
const (
	EventListener = "listener" // the message includes the proxy's listener
	EventStarted  = "started"
	EventFailed   = "failed" // the program could not be started or watched: Step, Errno, Detail
	EventLimit    = "limit"  // a limit was exceeded and the tree is being killed: Limit
	EventEnded    = "ended"  // the program ended: Code, Signal, Usage
)

// Commands to the helper, one byte each. The end of the socket means CommandKill.
const (
	CommandRoom = 'r' // build the shared part in advance; includes a Room, as JSON in an anonymous file
	CommandJob  = 'j' // run the job; includes descriptors, see ControlFD
	CommandGo   = 'g' // start the program: the helper is in its control group
	CommandTerm = 't'
	CommandKill = 'k'
)

// Event is one report of the helper.
type Event struct {
	Kind   string `json:"k"`
	Step   string `json:"step,omitempty"`
	Errno  int    `json:"errno,omitempty"`
	Detail string `json:"detail,omitempty"`
	Limit  string `json:"limit,omitempty"` // memory, cpu, disk
	Code   int    `json:"code,omitempty"`  // -1 when a signal ended the program
	Signal int    `json:"sig,omitempty"`
	Usage  Usage  `json:"usage,omitzero"`
}

// Usage is the resource usage of the whole tree.
type Usage struct {
	User   time.Duration `json:"u,omitempty"`
	System time.Duration `json:"s,omitempty"`
	MaxRSS int64         `json:"r,omitempty"` // bytes of the largest process
}
