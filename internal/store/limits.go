package store

import "time"

// Limits of change.go.
const (
	firstRetryDelay = 50 * time.Millisecond
	maxRetryDelay   = 2 * time.Second
	aliveInterval   = 5 * time.Second // how often a silent connection is pinged
)

// Limits of a Postgres server's connections.
const (
	postgresConns    = 16 // of one gateway, beside the one that listens
	connectTimeout   = 5 * time.Second
	statementTimeout = 15 * time.Second // of one statement, enforced by the server
	pingTimeout      = 2 * time.Second  // of checking whether a connection is alive
	queryTimeout     = 20 * time.Second // of one statement or transaction, enforced by this process, because the server may never answer
	lockTimeout      = 10 * time.Second // of waiting for another transaction
	idleInTxTimeout  = time.Minute      // after which the server ends an idle transaction
	maxMessage       = 64 << 20         // bytes of one message of the server: a row, at most
	maxPostgresURL   = 2 << 10
	connectionTTL    = 30 * time.Minute
)

// Limits of store.go.
const (
	// maxConns bounds the connections, because SQLite can only use one writer and a few readers.
	maxConns = 6
	// maxAttempts is the maximum number of attempts of a transaction that conflicts with others.
	maxAttempts = 10
)
