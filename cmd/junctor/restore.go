package main

import (
	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/internal/server"
	"github.com/junctor-run/junctor/internal/store/backup"
)

func (a *app) restoreCommand() *cobra.Command {
	var check bool
	c := &cobra.Command{
		Use: "restore FILE", Short: "Make a home of a backup, all of it or nothing; --check only looks at the file",
		Long: `Make a home of a backup, all of it or nothing. The home (--home, or where it usually
is) must not be there, or be an empty folder. Every file is compared with what was
written, SQLite looks through the database, and the audit chain is verified, before
the home gets its name.`,
		Example: `  junctor restore junctor-backup-20261122-101500.tar.gz --check
  junctor restore junctor-backup-20261122-101500.tar.gz --home ~/restored`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			knows, err := server.Schemas()
			if err != nil {
				return err
			}
			if check {
				m, err := backup.Check(cmd.Context(), args[0], knows)
				if err != nil {
					return err
				}
				return a.printBackup("this is a whole backup:", args[0], m, map[string]any{"file": args[0]})
			}
			home, err := a.findHome()
			if err != nil {
				return err
			}
			m, err := backup.Restore(cmd.Context(), args[0], home, knows)
			if err != nil {
				return err
			}
			if err := a.printBackup("restored", args[0]+" to "+home, m, map[string]any{"file": args[0], "home": home}); err != nil || a.json {
				return err
			}
			a.printf("start it with: junctor serve --home %s\n", home)
			return nil
		},
	}
	c.Flags().BoolVar(&check, "check", false, "check the file and restore nothing")
	return c
}
