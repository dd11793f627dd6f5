package seccomp

import "runtime"

// tables returns the supported architectures by their Go names.
func tables() map[string]table {
	return map[string]table{
		"amd64": {arch: 0xc000003e, x32: true, numbers: numbersAMD64()},
		"arm64": {arch: 0xc00000b7, numbers: numbersARM64()},
	}
}

func native() (table, bool) {
	t, ok := tables()[runtime.GOARCH]
	return t, ok
}
