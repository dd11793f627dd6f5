// Package router implements the capability-router protocol, version 1: JSON over HTTP, by
// which an endpoint (the server of remote modules) offers actions, providers, routes, models
// and other surfaces to a router (the client that aggregates endpoints). One table of 27
// methods defines the parameters and results of each call; the codec, the HTTP handler and
// the client derive from it.
//
// A member of the wrong type is an error that names its path; an unknown member is dropped.
// A value without unknown members is returned unchanged, and free-form JSON inside it is
// never re-encoded.
package router
