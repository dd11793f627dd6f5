package config

// Store configures the database of tokens, approvals, grants, outcomes, endpoints, sessions
// and the audit index.
type Store struct {
	URL            string `koanf:"url" doc:"The Postgres database that several gateways share, as postgres://user@host:5432/database without a password; ?sslmode= is disable, require or verify-full (the default but on this machine), ?sslrootcert= the file of a private authority, ?host= the folder of a socket. Empty: the SQLite file in the home. See docs/several-gateways.md."`
	PasswordSecret string `koanf:"password_secret" doc:"Name of the stored secret that holds the user's password (junctor secrets set NAME). Empty: none is sent."`
}
