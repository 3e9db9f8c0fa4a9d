package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/nats-io/nats.go"
)

// Errors of [Connect], beside bus.ErrUnavailable for a server that does not answer.
var (
	// ErrURL: the server's URL can not be read. What it holds is not told, since
	// a URL that can not be read is often one with an unescaped password.
	ErrURL = errors.New("server URL can not be read")
	// ErrOptions: options exclude each other, or a file that they name is no good.
	ErrOptions = errors.New("connection options can not be used")
	// ErrRefused: the server answers but does not let this client in.
	ErrRefused = errors.New("server refuses the credentials")
	// ErrTLS: the server answers but no secure connection came about.
	ErrTLS = errors.New("no secure connection")
)

// ErrPermission is what a [PermissionError] is.
var ErrPermission = errors.New("no permission")

// PermissionError says what the server refused this connection.
type PermissionError struct {
	Op      string // "publish" or "subscribe"
	Subject string // empty if the server named none
	Queue   string // the queue group, for a subscription in one
}

// Error names what was refused, in words that the server's configuration uses.
func (e *PermissionError) Error() string {
	s := fmt.Sprintf("%v to %s to %s", ErrPermission, e.Op, e.Subject)
	if e.Queue != "" {
		s += " in queue " + e.Queue
	}
	return s
}

// Is makes errors.Is true for ErrPermission and for nats.ErrPermissionViolation.
func (e *PermissionError) Is(target error) bool {
	return target == ErrPermission || target == nats.ErrPermissionViolation
}

// permission reads the server's refusal out of err, nil if err is none. The
// client library passes on the server's sentence:
// Permissions Violation for Publish to "a.b",
// Permissions Violation for Subscription to "a.b" using queue "q".
func permission(err error) *PermissionError {
	if typed, ok := errors.AsType[*PermissionError](err); ok {
		return typed
	}
	if !errors.Is(err, nats.ErrPermissionViolation) {
		return nil
	}
	e := &PermissionError{Op: "publish"}
	text := err.Error()
	if strings.Contains(text, "Subscription to ") {
		e.Op = "subscribe"
	}
	parts := strings.SplitN(text, `"`, 5)
	if len(parts) > 2 {
		e.Subject = parts[1]
	}
	if len(parts) > 4 {
		e.Queue = parts[3]
	}
	return e
}

// Denied returns what the server refused nc most recently, nil if it refused
// nothing since it last connected or if another problem has come up since.
func Denied(nc *nats.Conn) *PermissionError { return permission(nc.LastError()) }

// Explain adds the server's most recent refusal to err, if err is a time-out or
// says that nobody answered: that is how a call without permission ends. Any
// other err is returned as it is. The refusal may be an older one's, so the text
// of err comes first.
func Explain(nc *nats.Conn, err error) error {
	if !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, nats.ErrTimeout) && !errors.Is(err, nats.ErrNoResponders) {
		return err
	}
	if denied := Denied(nc); denied != nil {
		return fmt.Errorf("%w: %w", err, denied)
	}
	return err
}
