package natsconn

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// checkTimeout bounds the whole of Check unless its context ends before.
const checkTimeout = 5 * time.Second

// errSlow is the cause when checkTimeout has passed.
var errSlow = fmt.Errorf("no answer within %s", checkTimeout)

// Check asks whether Skald can work with the server behind nc: it answers, is
// not older than bus.MinServerVersion, and has JetStream for this account. js
// must belong to nc.
//
// Errors: bus.ErrUnavailable, bus.ErrServerTooOld, bus.ErrNoJetStream, a
// *[PermissionError] if the account may not be asked about, or the cause of ctx.
// Each names the server without credentials, and what to check.
func Check(ctx context.Context, nc *nats.Conn, js jetstream.JetStream) error {
	ctx, cancel := context.WithTimeoutCause(ctx, checkTimeout, errSlow)
	defer cancel()
	url := Redact(strings.Join(nc.Servers(), ","))
	if err := nc.FlushWithContext(ctx); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			err = cause
		}
		return fmt.Errorf("reach NATS at %s: %w: %w: check that the server runs, the host, the port and the network between", url, bus.ErrUnavailable, err)
	}
	if have := nc.ConnectedServerVersion(); !atLeast(have, bus.MinServerVersion) {
		return fmt.Errorf("%w: %s runs %s, at least %s is needed", bus.ErrServerTooOld, url, have, bus.MinServerVersion)
	}
	_, err := js.AccountInfo(ctx)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, jetstream.ErrJetStreamNotEnabled):
		return fmt.Errorf("%w: the server at %s runs without it: start it with -js or a jetstream block in its configuration", bus.ErrNoJetStream, url)
	case errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount):
		return fmt.Errorf("%w: this account on %s has none: add jetstream to the account in the server's configuration", bus.ErrNoJetStream, url)
	}
	if cause := context.Cause(ctx); cause != nil {
		err = fmt.Errorf("%w: %w", err, cause)
	}
	return fmt.Errorf("ask %s for JetStream: %w", url, Explain(nc, err))
}

// atLeast reports whether version have is want or newer. Only the three numbers
// count: a pre-release of want passes, and so does a build's suffix.
func atLeast(have, want string) bool {
	h, ok := numbers(have)
	if !ok {
		return false
	}
	w, _ := numbers(want)
	for i := range h {
		if h[i] != w[i] {
			return h[i] > w[i]
		}
	}
	return true
}

func numbers(version string) (n [3]int, ok bool) {
	version, _, _ = strings.Cut(version, "-")
	version, _, _ = strings.Cut(version, "+")
	parts := strings.Split(strings.TrimPrefix(version, "v"), ".")
	if len(parts) != 3 {
		return n, false
	}
	for i, p := range parts {
		v, err := strconv.Atoi(p)
		if err != nil {
			return n, false
		}
		n[i] = v
	}
	return n, true
}
