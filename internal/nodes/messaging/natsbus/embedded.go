package natsbus

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"os"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/junctor-run/junctor/capability"
)

// Embed starts a server inside this process. It keeps its buckets below dir,
// which it makes; a directory it cannot use is emptied. It opens no port.
func Embed(ctx context.Context, dir string, cfg Config) (*Broker, error) {
	keys, err := randomKeys()
	if err != nil {
		return nil, err
	}
	b := newBroker(cfg, keys)
	b.embedded, b.dir, b.direct = true, dir, newDirect()
	ns, err := startServer(dir, keys.names, b.cfg.Logger)
	if err != nil {
		b.cfg.Logger.Warn("the message bus begins with an empty directory", "dir", dir, "err", err)
		if err = os.RemoveAll(dir); err == nil {
			ns, err = startServer(dir, keys.names, b.cfg.Logger)
		}
	}
	if err != nil {
		b.Close()
		return nil, capability.Wrap(capability.CodeFailed, "bus.open", "the message bus cannot be started", err).
			With("", "see the log; its directory may be removed, nothing is lost with it")
	}
	b.stop = func() { ns.Shutdown(); ns.WaitForShutdown() }
	b.link = func(context.Context) (net.Conn, error) { return ns.InProcessConn() }
	if err := b.connect(ctx, "", nats.InProcessServer(ns)); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func startServer(dir string, names keyNames, logger *slog.Logger) (*server.Server, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	opts := &server.Options{}
	if err := opts.ProcessConfigString(serverConfig(names)); err != nil {
		return nil, fmt.Errorf("configuration of the embedded server: %w", err)
	}
	opts.ServerName = "junctor"
	opts.DontListen = true
	opts.NoSigs = true
	opts.JetStream = true
	opts.StoreDir = dir
	opts.JetStreamMaxMemory = maxMemory
	opts.JetStreamMaxStore = maxStore
	opts.DisableJetStreamBanner = true
	ns, err := server.NewServer(opts)
	if err != nil {
		return nil, err
	}
	ns.SetLoggerV2(serverLog{logger}, false, false, false)
	ns.Start()
	if !ns.ReadyForConnections(10*time.Second) || !ns.JetStreamEnabled() {
		ns.Shutdown()
		ns.WaitForShutdown()
		return nil, fmt.Errorf("the embedded server did not become ready")
	}
	return ns, nil
}

// serverLog writes what the server says to ours. What a server notices in the
// course of its work is for who looks closer.
type serverLog struct{ to *slog.Logger }

func (l serverLog) say(level slog.Level, format string, args []any) {
	if l.to.Enabled(context.Background(), level) {
		l.to.Log(context.Background(), level, fmt.Sprintf(format, args...), "part", "nats")
	}
}

func (l serverLog) Noticef(format string, args ...any) { l.say(slog.LevelDebug, format, args) }
func (l serverLog) Warnf(format string, args ...any)   { l.say(slog.LevelWarn, format, args) }
func (l serverLog) Fatalf(format string, args ...any)  { l.say(slog.LevelError, format, args) }
func (l serverLog) Errorf(format string, args ...any)  { l.say(slog.LevelWarn, format, args) }
func (l serverLog) Debugf(format string, args ...any)  { l.say(slog.LevelDebug, format, args) }
func (l serverLog) Tracef(format string, args ...any)  { l.say(slog.LevelDebug, format, args) }
