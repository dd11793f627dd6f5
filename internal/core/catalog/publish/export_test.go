package publish

import "time"

// Tell looks at the subscribers as if it were now.
func (n *Contexts) Tell(now time.Time) { n.notifyDue(now) }
