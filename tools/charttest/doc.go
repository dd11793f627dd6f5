// Package charttest tests the files in the folder deploy of the repository: the chart is
// rendered as Helm does it, and compose files are read as YAML. No cluster and no container
// engine is used.
package charttest
