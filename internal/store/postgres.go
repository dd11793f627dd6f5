package store

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/secret"
)

// Postgres is the location of the shared database.
type Postgres struct {
	// URL is postgres://user@host:5432/database, or postgres://user@/database?host=/dir
	// for a socket; see [CheckURL].
	URL string
	// Password may be empty if the server does not require one.
	Password secret.Value
}

// address is the parsed URL.
type address struct {
	host, database, user string // a host that begins with / is the folder of a socket
	port                 uint16
	tls                  string // disable, require, verify-full
	rootCert             string
}

// PlaceOf returns a display name of the database at a configured URL, without user and password.
func PlaceOf(url string) string {
	a, err := readURL(url)
	if err != nil {
		return "of store.url"
	}
	return a.String()
}

func (a address) String() string {
	if strings.HasPrefix(a.host, "/") {
		return fmt.Sprintf("%s of the Postgres server at the socket in %s", a.database, a.host)
	}
	return fmt.Sprintf("%s of the Postgres server at %s", a.database, net.JoinHostPort(a.host, strconv.Itoa(int(a.port))))
}

// CheckURL returns an error if a URL cannot be used for the shared database: because of another
// scheme, a password (which belongs into the secret store), a missing user or database,
// several hosts, or a setting other than sslmode (disable, require, verify-full), sslrootcert
// (an absolute path) and host (the folder of a socket). Without sslmode, connections to this
// machine are unencrypted, and all others use TLS with a verified name. The errors do not
// contain parts of the URL.
func CheckURL(text string) error {
	_, err := readURL(text)
	return err
}

// readURL parses and checks a URL; see CheckURL.
func readURL(text string) (address, error) {
	u, err := url.Parse(text)
	if err != nil || len(text) > maxPostgresURL {
		return address{}, errors.New("it cannot be read as postgres://user@host:5432/database")
	}
	if u.Scheme != "postgres" && u.Scheme != "postgresql" {
		return address{}, errors.New("its scheme is not postgres: write postgres://user@host:5432/database, or leave it empty for the SQLite file in the home")
	}
	if _, has := u.User.Password(); has {
		return address{}, errors.New("it holds a password: keep that with junctor secrets set NAME, and name it in store.password_secret")
	}
	a := address{host: u.Hostname(), port: 5432, database: strings.TrimPrefix(u.Path, "/"), user: u.User.Username()}
	if p := u.Port(); p != "" {
		n, err := strconv.ParseUint(p, 10, 16)
		if err != nil || n == 0 {
			return address{}, errors.New("its port is not a number from 1 to 65535")
		}
		a.port = uint16(n)
	}
	for name, values := range u.Query() {
		v := values[0]
		switch {
		case len(values) != 1:
			return address{}, errors.New("it says something twice")
		case name == "sslmode" && (v == "disable" || v == "require" || v == "verify-full"):
			a.tls = v
		case name == "sslrootcert" && filepath.IsAbs(v):
			a.rootCert = v
		case name == "host" && a.host == "" && filepath.IsAbs(v):
			a.host = v
		default:
			return address{}, errors.New("there are three settings: sslmode, which is disable, require or verify-full; sslrootcert, an absolute path; and host, the folder of a socket")
		}
	}
	switch {
	case u.Opaque != "" || u.Fragment != "" || a.host == "" || strings.Contains(a.host, ","):
		return address{}, errors.New("it names no host, or several")
	case a.user == "" || a.database == "" || strings.ContainsAny(a.user+a.database, "\x00/"):
		return address{}, errors.New("it names no user or no database: write postgres://user@host:5432/database")
	}
	if a.tls == "" {
		a.tls = "verify-full"
		if ip, err := netip.ParseAddr(a.host); a.host == "localhost" || strings.HasPrefix(a.host, "/") || err == nil && ip.IsLoopback() {
			a.tls = "disable"
		}
	}
	return a, nil
}

// config returns the connections' settings. It uses neither environment variables nor files
// in a user's home directory.
func (a address) config(password secret.Value) (*pgx.ConnConfig, error) {
	cfg, err := pgx.ParseConfig("host=127.0.0.1 port=1 user=x database=x password=x sslmode=disable")
	if err != nil {
		return nil, errors.New("the settings of the environment (PG…) cannot be read; start the server without them")
	}
	cfg.Host, cfg.Port, cfg.Database, cfg.User, cfg.Password = a.host, a.port, a.database, a.user, ""
	if !password.Empty() {
		cfg.Password = password.Reveal()
	}
	cfg.Fallbacks, cfg.ConnectTimeout, cfg.MaxProtocolMessageBodyLen = nil, connectTimeout, maxMessage
	cfg.KerberosSpn, cfg.KerberosSrvName, cfg.TLSConfig = "", "", nil
	millis := func(d time.Duration) string { return strconv.FormatInt(d.Milliseconds(), 10) }
	cfg.RuntimeParams = map[string]string{
		"application_name": "junctor", "standard_conforming_strings": "on", "client_encoding": "UTF8", "search_path": "public",
		"statement_timeout": millis(statementTimeout), "lock_timeout": millis(lockTimeout),
		"idle_in_transaction_session_timeout": millis(idleInTxTimeout),
		"default_transaction_isolation":       "read committed",
	}
	if a.tls == "disable" {
		return cfg, nil
	}
	cfg.TLSConfig = &tls.Config{ServerName: a.host, MinVersion: tls.VersionTLS12}
	if a.tls == "require" { // encrypted, without verifying the server
		cfg.TLSConfig.InsecureSkipVerify = true //nolint:gosec // configured by the operator in the URL
	}
	if a.rootCert != "" {
		pem, err := os.ReadFile(a.rootCert)
		if err != nil {
			return nil, fmt.Errorf("the file of sslrootcert cannot be read: %w", err)
		}
		cfg.TLSConfig.RootCAs = x509.NewCertPool()
		if !cfg.TLSConfig.RootCAs.AppendCertsFromPEM(pem) {
			return nil, errors.New("the file of sslrootcert holds no certificate")
		}
	}
	return cfg, nil
}

// OpenPostgres connects to the database that several gateways share and migrates the core
// tables; gateways that start at once wait for each other. The error is unavailable if the
// server does not answer. Errors never contain the password.
func OpenPostgres(ctx context.Context, p Postgres) (*DB, error) {
	return openServer(ctx, p, queryTimeout)
}

// Reach checks whether the database can be used, and changes nothing. Errors are those of
// [OpenPostgres].
func Reach(ctx context.Context, p Postgres) error {
	d, err := dial(p, queryTimeout)
	if err != nil {
		return err
	}
	return errors.Join(d.sql.PingContext(ctx), d.sql.Close())
}

// openServer connects and migrates the core tables. limit bounds each query.
func openServer(ctx context.Context, p Postgres, limit time.Duration) (*DB, error) {
	d, err := dial(p, limit)
	if err != nil {
		return nil, err
	}
	if err := CoreTables().Migrate(ctx, d); err != nil {
		return nil, errors.Join(err, d.sql.Close())
	}
	return d, nil
}

// dial returns a DB that connects when it is first used.
func dial(p Postgres, limit time.Duration) (*DB, error) {
	a, err := readURL(p.URL)
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "store", "store.url cannot be used: %v", err)
	}
	cfg, err := a.config(p.Password)
	if err != nil {
		return nil, capability.Errorf(capability.CodeInvalidInput, "store", "store.url cannot be used: %v", err)
	}
	d := &DB{pg: &postgres{cfg: cfg, at: a}}
	d.sql = sql.OpenDB(connector{stdlib.GetConnector(*cfg), limit})
	d.sql.SetMaxOpenConns(postgresConns)
	d.sql.SetMaxIdleConns(postgresConns)
	d.sql.SetConnMaxLifetime(connectionTTL)
	return d, nil
}

// postgres is the state of a DB's server.
type postgres struct {
	cfg    *pgx.ConnConfig
	at     address
	health health
}

// connector opens connections that accept the placeholder ? and translate errors.
type connector struct {
	driver.Connector
	limit time.Duration
}

func (c connector) Connect(ctx context.Context) (driver.Conn, error) {
	conn, err := c.Connector.Connect(ctx)
	if err != nil {
		return nil, explain(ctx, err, true)
	}
	return connection{conn.(*stdlib.Conn), c.limit}, nil
}
