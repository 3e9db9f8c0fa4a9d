package logs

import (
	"context"
	"log/slog"
	"sync"
	"time"
)

const (
	// quiet is how long a line silences those with the same level and message.
	quiet = time.Second
	// maxKinds bounds how many are remembered for that. Messages are constants, of
	// which there are fewer.
	maxKinds = 1024
	// suppressed is the attribute that counts what was not passed on.
	suppressed = "suppressed"
)

// Limit returns a handler that passes records on to next, of warnings and errors with
// the same level and message at most one a second.
func Limit(next slog.Handler) slog.Handler {
	return &limiter{next: next, shared: &kinds{seen: map[kind]*passed{}}}
}

// limiter is a handler. Those made from it by attributes and groups share what was
// seen: the same trouble of another part is the same trouble.
type limiter struct {
	next   slog.Handler
	shared *kinds
}

type kind struct {
	level   slog.Level
	message string
}

type passed struct {
	at      time.Time
	dropped int // since then
}

type kinds struct {
	mu   sync.Mutex
	seen map[kind]*passed
}

// allow reports whether a record may pass, and how many of its kind have not since the
// last one that did.
func (k *kinds) allow(which kind, now time.Time) (dropped int, ok bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	p := k.seen[which]
	switch {
	case p == nil:
		if len(k.seen) >= maxKinds {
			clear(k.seen)
		}
		k.seen[which] = &passed{at: now}
		return 0, true
	// A clock that was set back must not silence anything for longer.
	case now.Sub(p.at) < quiet && !now.Before(p.at):
		p.dropped++
		return 0, false
	}
	dropped = p.dropped
	p.at, p.dropped = now, 0
	return dropped, true
}

// Enabled implements slog.Handler.
func (l *limiter) Enabled(ctx context.Context, level slog.Level) bool {
	return l.next.Enabled(ctx, level)
}

// Handle implements slog.Handler.
func (l *limiter) Handle(ctx context.Context, r slog.Record) error {
	if r.Level < slog.LevelWarn {
		return l.next.Handle(ctx, r)
	}
	dropped, ok := l.shared.allow(kind{r.Level, r.Message}, r.Time)
	if !ok {
		return nil
	}
	if dropped > 0 {
		r = r.Clone()
		r.AddAttrs(slog.Int(suppressed, dropped))
	}
	return l.next.Handle(ctx, r)
}

// WithAttrs implements slog.Handler.
func (l *limiter) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &limiter{l.next.WithAttrs(attrs), l.shared}
}

// WithGroup implements slog.Handler.
func (l *limiter) WithGroup(name string) slog.Handler {
	return &limiter{l.next.WithGroup(name), l.shared}
}
