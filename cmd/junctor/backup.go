package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/backup"
)

func (a *app) backupCommand() *cobra.Command {
	var force bool
	c := &cobra.Command{
		Use: "backup [FILE]", Short: "Write the home into one file, also while the server runs",
		Long: `Write everything of the home that cannot be made anew into one file, as it is at one
moment, while the server runs or not: the database, the audit log, configuration,
policies, secrets, extensions, large values. The file holds secrets; keep it where
only you can read it. Try it with: junctor restore FILE --check.`,
		Example: `  junctor backup
  junctor backup /mnt/disk/junctor.tar.gz --force`,
		Args: cobra.MaximumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			home, err := a.findHome()
			if err != nil {
				return err
			}
			now := time.Now().UTC()
			name := "junctor-backup-" + now.Format("20060102-150405") + ".tar.gz"
			if len(args) == 1 {
				if info, err := os.Stat(args[0]); err == nil && info.IsDir() {
					name = filepath.Join(args[0], name)
				} else {
					name = args[0]
				}
			}
			opts := backup.Options{Home: home, File: name, Force: force, Version: version(), Now: now}
			// A home with an invalid configuration can be backed up too.
			cfg, err := a.loadConfig(home, "", nil)
			if err != nil {
				a.warnf("the configuration cannot be read, so it is not known whether store.url names another database: %s",
					capability.AsError(err).Message)
			}
			if cfg.Store.URL != "" {
				opts.Shared = store.PlaceOf(cfg.Store.URL)
			}
			m, err := backup.Make(cmd.Context(), opts)
			if err != nil {
				return err
			}
			return a.printBackup("backed up", home+" to "+name, m, map[string]any{"file": name, "home": home})
		},
	}
	c.Flags().BoolVar(&force, "force", false, "replace FILE")
	return c
}

// printBackup prints the content of a backup and what it does not contain.
func (a *app) printBackup(did, what string, m backup.Manifest, out map[string]any) error {
	var size int64
	for _, f := range m.Files {
		size += f.Size
	}
	if m.Shared != "" {
		a.warnf("this is not everything: tokens, approvals, grants, endpoints, nodes, upstreams, tasks and messages are in the database %s, which several gateways share; back it up with pg_dump", plainText(m.Shared))
	}
	if bad := m.Audit.FirstBad; bad != nil {
		a.warnf("the audit chain of this home was broken already, at record %d: %s", bad.Seq, plainText(bad.Reason))
	}
	if a.json {
		for k, v := range map[string]any{
			"version": m.Version, "created": m.Created, "files": len(m.Files), "bytes": size, "schemas": m.Schemas,
			"audit": m.Audit, "left_out": m.LeftOut, "shared": m.Shared,
		} {
			out[k] = v
		}
		data, err := json.Marshal(out)
		if err != nil {
			return err
		}
		return a.printJSON(data)
	}
	a.printf("%s %s\n", did, plainText(what))
	a.printf("%d files and folders, %.1f MiB, %d audit records; by junctor %s, %s\n", len(m.Files), float64(size)/(1<<20), m.Audit.Records,
		plainText(m.Version), m.Created.Format(time.RFC3339))
	for _, l := range m.LeftOut {
		a.printf("  not in it: %s (%s)\n", plainText(l.Path), plainText(l.Why))
	}
	return nil
}
