module github.com/junctor-run/junctor/examples/endpoint-go

go 1.26.0

require github.com/junctor-run/junctor v0.0.0

require (
	github.com/go-json-experiment/json v0.0.0-20260820222146-c27c302e5fc3 // indirect
	golang.org/x/text v0.43.0 // indirect
)

// Yours has a version in the place of v0.0.0, and not this line.
replace github.com/junctor-run/junctor => ../..
