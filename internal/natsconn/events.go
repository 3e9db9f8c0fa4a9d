package natsconn

import (
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
)

const (
	// repeatAfter is how long an error that was logged is not logged again: a
	// publisher without permission is refused for each message, and a client
	// with a wrong password at each attempt to reconnect.
	repeatAfter = 10 * time.Second
	// maxErrors bounds how many errors are remembered for that.
	maxErrors = 256
)

// events logs what happens to a connection outside of its calls.
type events struct {
	log *slog.Logger

	mu     sync.Mutex
	logged map[string]time.Time // when, by the error's text
}

// handlers returns the options that send a connection's events to log, which may
// be nil.
func handlers(log *slog.Logger) []nats.Option {
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	e := &events{log: log, logged: make(map[string]time.Time)}
	return []nats.Option{
		nats.ErrorHandler(e.failed),
		nats.DisconnectErrHandler(func(_ *nats.Conn, err error) {
			if err != nil { // nil: closed on purpose
				log.Warn("NATS connection lost, reconnecting", "err", err)
			}
		}),
		nats.ReconnectHandler(func(nc *nats.Conn) {
			log.Info("NATS connection is back", "server", Redact(nc.ConnectedUrl()))
		}),
		nats.ReconnectErrHandler(func(_ *nats.Conn, err error) {
			log.Debug("NATS reconnect attempt ended", "err", err)
		}),
		nats.LameDuckModeHandler(func(nc *nats.Conn) {
			log.Info("NATS server will shut down", "server", Redact(nc.ConnectedUrl()))
		}),
	}
}

// failed logs an error that belongs to no call.
func (e *events) failed(_ *nats.Conn, sub *nats.Subscription, err error) {
	subject := ""
	if sub != nil {
		subject = sub.Subject
	}
	if !e.first(err.Error() + " " + subject) {
		return
	}
	if denied := permission(err); denied != nil {
		e.log.Error("NATS server refuses permission", "op", denied.Op, "subject", denied.Subject, "queue", denied.Queue)
		return
	}
	if errors.Is(err, nats.ErrSlowConsumer) {
		e.log.Warn("NATS client reads too slowly, messages were dropped", "subject", subject)
		return
	}
	e.log.Warn("NATS connection error", "err", err, "subject", subject)
}

// first reports whether the error was not logged lately.
func (e *events) first(text string) bool {
	now := time.Now()
	e.mu.Lock()
	defer e.mu.Unlock()
	if at, ok := e.logged[text]; ok && now.Sub(at) < repeatAfter {
		return false
	}
	if len(e.logged) >= maxErrors {
		clear(e.logged)
	}
	e.logged[text] = now
	return true
}
