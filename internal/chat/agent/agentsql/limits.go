package agentsql

import "time"

// noteTTL is how long a note is kept that no gateway answers.
const noteTTL = 10 * time.Minute
