// Package router owns the capability-router wire, version 1: the JSON-over-HTTP
// protocol by which an endpoint (the server that owns remote modules) offers
// actions, providers, routes, models and the other surfaces to a router (the
// client that aggregates endpoints). One table of 27 methods states what each
// call carries and returns; the codec, the HTTP handler and the client all
// derive from it, so that the two directions cannot drift apart.
//
// The codec is strict about shape and silent about extras: a member of the
// wrong type is an error that names its place, an unknown member is dropped.
// A value with nothing to drop is returned as the very bytes that came in, and
// free-form JSON inside it is never re-encoded.
package router
