package main

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/host/device"
	"github.com/junctor-run/junctor/internal/config"
	"github.com/junctor-run/junctor/internal/nodes/noderun"
	"github.com/junctor-run/junctor/internal/platform/telemetry"
	"github.com/junctor-run/junctor/protocol/cmp"
	"github.com/junctor-run/junctor/secret"
)

func (a *app) nodeCommand() *cobra.Command {
	return a.group("node", "Run this machine as a node of a gateway",
		a.nodeJoinCommand(), a.nodeStatusCommand(), a.nodeOrderCommand("drain", "Drain this node: finish what runs, then leave",
			"The node has finished and left."),
		a.nodeOrderCommand("leave", "Leave at once and cancel what runs", "The node has left."), a.nodeRescanCommand(), a.nodeConsentCommand())
}

// joinFlags returns the flags of "node join" that set keys of the configuration, with their keys.
func joinFlags() map[string]string {
	return map[string]string{
		"id": "node.id", "location": "node.location", "max-concurrent": "node.max_concurrent", "label": "node.labels",
		"node-token-file": "node.credential",
		"development":     "node.development", "auto-consent": "host.auto_consent", "actions": "host.actions_dir",
		"allow-code":  "host.allow_transferred_code",
		"prefer-code": "host.prefer_transferred_code", "allow-language": "host.languages",
	}
}

func (a *app) nodeJoinCommand() *cobra.Command {
	var file, readyFile string
	var detach bool
	var report int
	c := &cobra.Command{
		Use:   "join [URL]",
		Short: "Join a gateway and offer this machine's actions and skills",
		Long: `Join a gateway and offer this machine's actions and skills, until it is ended.

The first time, the node makes a key and enrols with the operator's node token;
from then on the key is enough. It comes back by itself after every outage. Gateways
that share a bus are given as one list with commas between, and tried in turn. Skills
that demand it are installed after the owner of this machine has agreed: here, or
with "junctor node consent".`,
		Example: `  junctor node join https://gateway.example.org --node-token-file token --label camera
  junctor node join --detach`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			set := make(map[string]any)
			for name, key := range joinFlags() {
				flag := cmd.Flags().Lookup(name)
				switch {
				case !flag.Changed:
				case flag.Value.Type() == "stringArray":
					list, err := cmd.Flags().GetStringArray(name)
					if err != nil {
						return err
					}
					if name == "allow-language" { // in addition to the defaults
						list = append(config.Default().Host.Languages, list...)
					}
					set[key] = list
				default:
					set[key] = flag.Value.String()
				}
			}
			if len(args) > 0 {
				set["node.gateway"] = args[0]
			}
			home, err := a.findHome()
			if err != nil {
				return err
			}
			if detach {
				return a.detachNode(cmd.Context(), home)
			}
			err = a.joinNode(cmd.Context(), home, file, set, readyFile, report)
			reportDetached(report, nil, err)
			return err
		},
	}
	f := c.Flags()
	f.String("node-token-file", "", "`FILE` file with the operator's node token; needed until the node has enrolled")
	f.String("id", "", "`ID` id of this node at the gateway (default the one it has had, else the host's name)")
	f.StringArray("label", nil, "`LABEL` label for routing and filters (repeatable)")
	f.String("location", "", "`TEXT` where this node is, for people to read")
	f.Int("max-concurrent", 0, "calls that run at once (default 10)")
	f.String("actions", "", "`DIR` folder with this device's own actions (default node/actions in the home)")
	f.Bool("allow-code", false, "let skills bring code, which runs in processes that can only compute")
	f.Bool("prefer-code", false, "use the code of a skill even where there is an action for the same")
	f.StringArray("allow-language", nil, "`LANGUAGE` language of code besides javascript and wasm: python (repeatable)")
	f.Bool("development", false, "mark this node as one for trying things out")
	f.Bool("auto-consent", false, "agree to every skill unasked; needs --development")
	f.BoolVar(&detach, "detach", false, "return when the node has joined, and go on in the background")
	f.StringVar(&readyFile, "ready-file", "", "`FILE` also write the ready line to this file")
	f.StringVar(&file, "config", "", "`FILE` configuration file (default config.yaml in the home)")
	f.IntVar(&report, "detached-to", 0, "")
	if err := f.MarkHidden("detached-to"); err != nil {
		panic(err) // the flag is three lines above
	}
	return c
}

// readyNode is the line that reports that a node has joined.
type readyNode struct {
	NodeID         string   `json:"node_id"`
	Gateway        string   `json:"gateway"`
	PID            int      `json:"pid"`
	Home           string   `json:"home"`
	Epoch          int64    `json:"epoch"`
	Labels         []string `json:"labels"`
	RejectedLabels []string `json:"rejected_labels,omitempty"`
	Functions      int      `json:"functions"`
	Version        string   `json:"version"`
	Log            string   `json:"log,omitempty"`
}

// joinNode runs a node until ctx ends. report is the file descriptor for the process that started it
// in the background, or 0.
func (a *app) joinNode(ctx context.Context, home, file string, set map[string]any, readyFile string, report int) error {
	cfg, err := a.loadConfig(home, file, set)
	if err != nil {
		return err
	}
	for _, name := range []string{"JUNCTOR_GATEWAY", "EASYREMOTE_GATEWAY", "EASYREMOTE_GATEWAY_ADDRESS"} {
		if cfg.Node.Gateway == "" {
			cfg.Node.Gateway = a.env(name)
		}
	}
	if cfg.Node.Gateway == "" {
		return capability.Errorf(capability.CodeInvalidInput, "", "which gateway? Give its URL, such as https://gateway.example")
	}
	var token secret.Value
	if cfg.Node.Credential != "" {
		if token, err = a.readSecretFile(cfg.Node.Credential); err != nil {
			return err
		}
	}
	logger, err := telemetry.NewLogger(a.stderr, cfg.Log.Level, cfg.Log.Format)
	if err != nil {
		return err
	}
	limits := &cmp.Limits{
		Modules: cfg.Host.Limits.RuntimeModules, ModuleSource: int(cfg.Host.Limits.ModuleSource), TotalSource: int(cfg.Host.Limits.TotalSource),
		Payload: int(cfg.Host.Limits.Payload),
	}
	p, err := noderun.Open(ctx, noderun.Config{
		Home: home, Languages: cfg.Host.Languages, Interactive: terminal(a.stdin), AutoConsent: cfg.Host.AutoConsent && cfg.Node.Development,
		Logger: logger,
		Device: device.Config{
			Gateway: cfg.Node.Gateway, Token: token, ID: cfg.Node.ID, Labels: cfg.Node.Labels, Location: cfg.Node.Location, Name: "junctor",
			Version:    version(),
			ActionsDir: cfg.Host.ActionsDir, AllowCode: cfg.Host.AllowTransferredCode, PreferCode: cfg.Host.PreferTransferredCode,
			Limits:        limits,
			MaxConcurrent: cfg.Node.MaxConcurrent, Queue: cfg.Node.Queue, Timeout: cfg.Limits.CallTimeout, Heartbeat: cfg.Node.Heartbeat,
			ReconnectWait: cfg.Node.Reconnect.Min, ReconnectMax: cfg.Node.Reconnect.Max,
		},
	})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if terminal(a.stdin) {
		go a.askOwner(ctx, p)
	} else { // a terminal that hangs up ends what runs in it
		go a.rescanOnHangup(ctx, p)
	}
	told := make(chan error, 1)
	go func() {
		select {
		case <-p.Joined():
			err := a.nodeReady(home, cfg.Node.Gateway, p.Device(), readyFile, report)
			if err != nil {
				cancel()
			}
			told <- err
		case <-ctx.Done():
			told <- nil
		}
	}()
	err = p.Run(ctx)
	cancel()
	if failed := <-told; err == nil {
		err = failed
	}
	return err
}

// nodeReady reports that the node has joined.
func (a *app) nodeReady(home, gateway string, d *device.Device, readyFile string, report int) error {
	s := d.Status()
	line := readyNode{
		NodeID: s.ID, Gateway: gateway, PID: os.Getpid(), Home: home, Epoch: s.Epoch, Labels: s.Labels, RejectedLabels: s.RejectedLabels,
		Functions: s.Functions, Version: version(),
	}
	data, err := json.Marshal(line)
	if err != nil {
		return err
	}
	if readyFile != "" {
		if err := replaceFile(readyFile, append(data, '\n')); err != nil {
			return err
		}
	}
	if report > 0 {
		reportDetached(report, data, nil)
		return nil
	}
	if a.json {
		return a.printJSON(data)
	}
	a.printf("Joined %s as %s, with %d functions.\n", gateway, s.ID, s.Functions)
	if len(s.RejectedLabels) > 0 {
		a.printf("The node's token does not grant the labels %s.\n", strings.Join(s.RejectedLabels, ", "))
	}
	return nil
}

// rescanOnHangup rereads the folder of actions on each SIGHUP, until ctx ends.
func (a *app) rescanOnHangup(ctx context.Context, p *noderun.Process) {
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			p.Device().Rescan(ctx)
		case <-ctx.Done():
			return
		}
	}
}

// askOwner asks the device's questions at the terminal until ctx ends. A question that was answered
// elsewhere before is skipped.
func (a *app) askOwner(ctx context.Context, p *noderun.Process) {
	lines := make(chan string)
	go func() { // ends with the process, because a read of a terminal cannot be cancelled
		in := bufio.NewScanner(a.stdin)
		for in.Scan() {
			select {
			case lines <- in.Text():
			case <-ctx.Done():
				return
			}
		}
	}()
	p.Questions(ctx, func(q device.Question) {
		fmt.Fprintf(a.stderr, "\n%sAgree? [y]es, [o]nce, [N]o: ", terminalText(noderun.Text(q)))
		decision := device.Deny
		select {
		case line := <-lines:
			switch strings.ToLower(strings.TrimSpace(line)) {
			case "y", "yes":
				decision = device.Grant
			case "o", "once":
				decision = device.GrantOnce
			}
		case <-ctx.Done():
			return
		}
		if err := p.Answer(q.RequestID, decision, "terminal"); err != nil {
			fmt.Fprintln(a.stderr, "That question is closed: it was answered elsewhere, or has expired.")
		}
	})
}

// terminalText removes control characters other than line feeds.
func terminalText(s string) string {
	lines := strings.Split(s, "\n")
	for i := range lines {
		lines[i] = plainText(lines[i])
	}
	return strings.Join(lines, "\n")
}

// askNode sends a request to the node that runs on this home. With --json it prints the answer,
// otherwise it passes the answer to show.
func (a *app) askNode(ctx context.Context, method, path string, body any, show func(json.RawMessage) error) error {
	home, err := a.findHome()
	if err != nil {
		return err
	}
	raw, err := noderun.Ask(ctx, home, method, path, body)
	if err != nil {
		return err
	}
	if a.json {
		return a.printJSON(raw)
	}
	return show(raw)
}

func (a *app) nodeStatusCommand() *cobra.Command {
	return &cobra.Command{
		Use: "status", Short: "Show how this home's node does", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.askNode(cmd.Context(), http.MethodGet, "/status", nil, decoded(func(r noderun.Report) error {
				rows := [][]string{
					{"id", r.ID},
					{"gateway", r.Gateway},
					{"state", r.State + " since " + when(r.Since)},
					{"process", fmt.Sprintf("%d since %s", r.PID, when(r.Started))},
					{"labels", dash(strings.Join(r.Labels, ", "))},
					{"functions", fmt.Sprint(r.Functions)},
					{"calls", fmt.Sprintf("%d running, %d waiting, %d streams", r.Active, r.Queued, r.Streams)},
					{"machine", fmt.Sprintf("cpu %.0f %%, memory %.0f %%", r.CPU, r.Memory)},
					{"audit", r.Audit},
				}
				if r.Error != "" {
					rows = append(rows, []string{"trouble", r.Error})
				}
				if r.Host != nil {
					code := "not taken"
					if r.Host.Flags.AllowTransferredCode {
						code = "taken, held by " + dash(r.Host.Isolation)
					}
					rows = append(rows, []string{"skills", fmt.Sprintf("%d installed, %d actions", r.Host.InstalledSkillCount, r.Host.ActionCount)},
						[]string{"pushed code", code})
				}
				if r.Questions > 0 {
					rows = append(rows, []string{"questions", fmt.Sprintf("%d wait for an answer: junctor node consent list", r.Questions)})
				}
				return a.fields(rows)
			}))
		},
	}
}

func (a *app) nodeOrderCommand(verb, short, done string) *cobra.Command {
	return &cobra.Command{
		Use: verb, Short: short, Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.askNode(cmd.Context(), http.MethodPost, "/"+verb, nil, a.done("%s\n", done))
		},
	}
}

func (a *app) nodeRescanCommand() *cobra.Command {
	return &cobra.Command{
		Use: "rescan", Short: "Read the folder of actions again", Args: cobra.NoArgs,
		Long: "Read the folder of actions again. SIGHUP does the same, away from a terminal.",
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.askNode(cmd.Context(), http.MethodPost, "/rescan", nil, decoded(func(r struct {
				Sandbox cmp.Sandbox
				Actions int
			},
			) error {
				if r.Sandbox.Error != nil {
					a.warnf("the folder could not be read whole, and what was there before stays: %s", plainText(*r.Sandbox.Error))
				}
				a.printf("%d actions.\n", r.Actions)
				return nil
			}))
		},
	}
}

func (a *app) nodeConsentCommand() *cobra.Command {
	list := &cobra.Command{
		Use: "list", Short: "List what waits for an answer", Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			return a.askNode(cmd.Context(), http.MethodGet, "/consent", nil, decoded(func(r struct{ Questions []device.Question }) error {
				for _, q := range r.Questions {
					a.printf("%s\n%s\n", plainText(q.RequestID), terminalText(noderun.Text(q)))
				}
				if len(r.Questions) == 0 {
					a.note("nothing waits for an answer")
				}
				return nil
			}))
		},
	}
	answer := func(verb, short string) *cobra.Command {
		var once bool
		c := &cobra.Command{
			Use: verb + " ID", Short: short, Args: cobra.ExactArgs(1),
			RunE: func(cmd *cobra.Command, args []string) error {
				decision := device.Deny
				if verb == "grant" {
					decision = device.Grant
				}
				if once {
					decision = device.GrantOnce
				}
				if strings.ContainsAny(args[0], "/?#%") {
					return capability.Errorf(capability.CodeInvalidInput, "", "%.100q is not an id of a question", args[0]).With("",
						"junctor node consent list")
				}
				return a.askNode(cmd.Context(), http.MethodPost, "/consent/"+args[0], map[string]string{"decision": decision},
					a.done("Answered: %s.\n", strings.ReplaceAll(decision, "_", " ")))
			},
		}
		if verb == "grant" {
			c.Flags().BoolVar(&once, "once", false, "this once, and ask again")
		}
		return c
	}
	return a.group("consent", "Answer what the owner of this machine is asked", list, answer("grant", "Agree to what is asked"),
		answer("deny", "Refuse what is asked"))
}
