package chatserve

import "math"

// maxLimit is the maximum of the parameter limit of lists, which may return fewer.
const maxLimit = math.MaxInt32
