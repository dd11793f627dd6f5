package worker

import _ "embed"

// shim is the program that the interpreter runs. It uses the same protocol as this binary.
//
//go:embed shim.py
var shim string
