package capability

import (
	"context"
	"errors"
)

// Kept states where work is that goes on at a far side without us.
type Kept struct {
	Capability   ID     `json:"capability"`
	UpstreamCall string `json:"upstream_call"`
}

// Keeper records such work as soon as it has a name, before any other news of it
// arrives. Keep returns once the record is stored.
type Keeper interface{ Keep(k Kept) }

// Resumer is a Provider whose work goes on at a far side when this process ends. It
// calls Call.Keep as soon as the far side has a name for the work, and does not end
// that work where the call's context ends with [ErrStopping].
type Resumer interface {
	// Resume follows the work that an earlier process kept to its end, and returns what
	// Invoke would have. It calls Call.Keep once it can end the work, too, and does not
	// start the work again. Errors: those of Invoke; not_found where
	// the far side does not know the work any more.
	Resume(ctx context.Context, c Call, upstreamCall string) (Result, error)
}

// ErrStopping is the cause of a context that ends because the server stops. What was
// kept somewhere else may go on.
var ErrStopping = errors.New("the server is stopping")
