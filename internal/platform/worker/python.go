package worker

import _ "embed"

// shim is what the interpreter runs: it uses the same lines as our own process.
//
//go:embed shim.py
var shim string
