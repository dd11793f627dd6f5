package server

import (
	"fmt"
	"io/fs"

	"github.com/junctor-run/junctor/internal/chat/agent/agentsql"
	"github.com/junctor-run/junctor/internal/chat/channels/channelsql"
	"github.com/junctor-run/junctor/internal/extensions/lifecycle"
	"github.com/junctor-run/junctor/internal/local/memory"
	"github.com/junctor-run/junctor/internal/serve/a2aserve/push"
	"github.com/junctor-run/junctor/internal/store"
	"github.com/junctor-run/junctor/internal/store/blob"
	"github.com/junctor-run/junctor/internal/store/sqlstore"
	"github.com/junctor-run/junctor/internal/store/tasksql"
	"github.com/junctor-run/junctor/internal/taskagents/choice"
	"github.com/junctor-run/junctor/internal/taskagents/threads/threadsql"
	"github.com/junctor-run/junctor/internal/upstreams/upstream/upstreamsql"
)

// Schemas returns the schema version of each owner's tables in this program. A database with higher
// [store.Versions] was written by a later program. A new owner is one line here; a test of
// upgrades fails without it.
func Schemas() (map[string]int64, error) {
	out := make(map[string]int64)
	for owner, migrations := range map[string]func() (fs.FS, error){
		store.Owner: store.Migrations, memory.Owner: memory.Migrations, sqlstore.Owner: sqlstore.Migrations,
		upstreamsql.Owner: upstreamsql.Migrations, lifecycle.Owner: lifecycle.Migrations, blob.Owner: blob.Migrations,
		push.Owner: push.Migrations, choice.Owner: choice.Migrations, threadsql.Owner: threadsql.Migrations,
		tasksql.Owner: tasksql.Migrations, agentsql.Owner: agentsql.Migrations, channelsql.Owner: channelsql.Migrations,
	} {
		files, err := migrations()
		if err == nil {
			out[owner], err = store.Latest(files)
		}
		if err != nil {
			return nil, fmt.Errorf("the migrations of %s: %w", owner, err)
		}
	}
	return out, nil
}
