package capability

import (
	"context"
	"errors"
)

// Kept identifies work at a far side that continues without this process.
type Kept struct {
	Capability   ID     `json:"capability"`
	UpstreamCall string `json:"upstream_call"`
}

// Keeper stores where work is performed as soon as the far side's id is known. Keep returns
// once the record is stored.
type Keeper interface{ Keep(k Kept) }

// Resumer is a Provider whose work continues at a far side when this process ends. It calls
// Call.Keep as soon as it has the far side's id of the work, and does not end that work if
// the cause of the call's context is [ErrStopping].
type Resumer interface {
	// Resume waits for the end of work that an earlier process started, and returns its
	// result like Invoke. It calls Call.Keep once it can end the work, and does not start the
	// work again. Errors: those of Invoke; not_found if the work no longer exists at the far
	// side.
	Resume(ctx context.Context, c Call, upstreamCall string) (Result, error)
}

// ErrStopping is the cause of a context that ends because the server stops. Work at a far
// side may continue.
var ErrStopping = errors.New("the server is stopping")
