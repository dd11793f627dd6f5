//go:build linux && !race

package jail

const hugeAddressSpace = false
