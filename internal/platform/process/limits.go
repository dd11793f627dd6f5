package process

import "time"

// lastWordsTimeout is how long output is still read after the program's end. Its tree has
// ended, so only what the terminal holds can arrive.
const lastWordsTimeout = time.Second
