package config

// Store configures the database of tokens, approvals, grants, outcomes, endpoints, sessions
// and the audit index.
type Store struct {
	URL            string `koanf:"url" doc:"Postgres database that several gateways share, as postgres://user@host:5432/database without a password; ?sslmode= is disable, require or verify-full (default, except on this machine), ?sslrootcert= a private authority's file, ?host= a socket's folder. Empty: SQLite in the home. See docs/several-gateways.md."`
	PasswordSecret string `koanf:"password_secret" doc:"Password of that user."`
}
