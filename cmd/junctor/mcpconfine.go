package main

import (
	"net/http"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"
)

// folderFlags holds the flags of a confined program.
type folderFlags struct {
	ro, rw []string
	net    string
}

func (o *folderFlags) add(c *cobra.Command) {
	f := c.Flags()
	f.StringArrayVar(&o.ro, "ro", nil, "`DIR` folder that the confined program may read (repeatable)")
	f.StringArrayVar(&o.rw, "rw", nil, "`DIR` folder that the confined program may change (repeatable)")
	f.StringVar(&o.net, "net", "", "`NET` network of the confined program: all, none, or HOST,... through a proxy (default all)")
}

func (o *folderFlags) given() bool { return len(o.ro)+len(o.rw) > 0 || o.net != "" }

// record adds the flags to the body of a request.
func (o *folderFlags) record(body map[string]any) error {
	for name, list := range map[string][]string{"read_only": o.ro, "read_write": o.rw} {
		var dirs []string
		for _, dir := range list { // the server may have another working directory
			dir, err := filepath.Abs(dir)
			if err != nil {
				return err
			}
			dirs = append(dirs, dir)
		}
		if len(dirs) > 0 {
			body[name] = dirs
		}
	}
	if o.net != "" {
		body["network"] = strings.Split(o.net, ",")
	}
	return nil
}

func (a *app) upstreamsConfineCommand() *cobra.Command {
	var o folderFlags
	c := &cobra.Command{
		Use: "confine NAME", Short: "Confine the program of an upstream, or change what it may see", Args: cobra.ExactArgs(1),
		Long: `Confine the program of an upstream to the system, its own folder, and the folders and
network named here; what it had before is replaced. What was approved stays approved.
If the program does not start like this, the upstream stays as it was.`,
		Example: `  junctor mcp confine files --rw /srv/docs
  junctor mcp confine fetch --net docs.example.org,api.example.org:8443`,
		RunE: func(cmd *cobra.Command, args []string) error {
			body := make(map[string]any)
			if err := o.record(body); err != nil {
				return err
			}
			return a.call(cmd.Context(), http.MethodPost, upstreamPath(args[0], "/confine"), body, decoded(func(u upstreamRow) error {
				a.printf("%s is confined (%s): %s\n", plainText(u.Name), u.confined(), u.counted())
				for _, path := range u.Unseen {
					a.warnf("it cannot see %s", plainText(path))
				}
				return nil
			}))
		},
	}
	o.add(c)
	return c
}
