package server

import (
	"fmt"

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
	for _, t := range []store.Tables{
		store.CoreTables(), memory.Tables(), sqlstore.Tables(), upstreamsql.Tables(), lifecycle.Tables(), blob.Tables(), push.Tables(),
		choice.Tables(), threadsql.Tables(), tasksql.Tables(), agentsql.Tables(), channelsql.Tables(),
	} {
		var err error
		if out[t.Owner], err = t.Latest(); err != nil {
			return nil, fmt.Errorf("the migrations of %s: %w", t.Owner, err)
		}
	}
	return out, nil
}
