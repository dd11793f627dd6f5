//go:build linux && race

package jail

// hugeAddressSpace: the race detector maps terabytes, so the helper itself
// cannot live under a limit of them, however briefly.
const hugeAddressSpace = true
