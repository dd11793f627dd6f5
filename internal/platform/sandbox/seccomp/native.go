package seccomp

import (
	_ "embed"
	"runtime"
	"strconv"
	"strings"
)

//go:embed calls.txt
var calls string

// tables returns the supported architectures by their Go names.
func tables() map[string]table {
	return map[string]table{
		"amd64": {arch: 0xc000003e, x32: true, numbers: numbers(1)},
		"arm64": {arch: 0xc00000b7, numbers: numbers(2)},
	}
}

// numbers returns a column of calls.txt by the names of the calls.
func numbers(column int) map[string]uint32 {
	out := make(map[string]uint32)
	for line := range strings.Lines(calls) {
		if nr, err := strconv.ParseUint(strings.Fields(line)[column], 10, 32); err == nil {
			out[strings.Fields(line)[0]] = uint32(nr)
		}
	}
	return out
}

func native() (table, bool) {
	t, ok := tables()[runtime.GOARCH]
	return t, ok
}
