package natsd

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"time"
)

const (
	// quiet is how long a line that was written silences lines like it. A server
	// under a port scan or with a full disk repeats itself without end.
	quiet = time.Second
	// maxKinds bounds how many kinds of lines are remembered for that.
	maxKinds = 512
)

// logger passes the server's log lines on: notices as Info, since the server
// says little after its start, errors and fatal errors as Error. Lines that
// differ in digits only (connection numbers, addresses, times) are one kind; of
// a kind one line is written in quiet, and the next one says how many were not.
type logger struct {
	to  *slog.Logger
	now func() time.Time

	mu      sync.Mutex
	kinds   map[string]*kind // by level and text without digits
	fatal   error            // the first fatal error, which keeps the server from starting
	running bool             // Start has returned a server
}

type kind struct {
	written time.Time
	dropped int
}

func newLogger(to *slog.Logger) *logger {
	return &logger{to: to, now: time.Now, kinds: make(map[string]*kind)}
}

func (l *logger) Noticef(format string, v ...any) { l.write(slog.LevelInfo, format, v) }
func (l *logger) Warnf(format string, v ...any)   { l.write(slog.LevelWarn, format, v) }
func (l *logger) Errorf(format string, v ...any)  { l.write(slog.LevelError, format, v) }
func (l *logger) Debugf(format string, v ...any)  { l.write(slog.LevelDebug, format, v) }
func (l *logger) Tracef(format string, v ...any)  { l.write(slog.LevelDebug-4, format, v) }

// Fatalf keeps the first error for [Start], which returns it, so that it is not
// written as well; any other is written. A server of its own would exit here; this
// one is part of a process that has more to end.
func (l *logger) Fatalf(format string, v ...any) {
	err := fatalError{text: fmt.Sprintf(format, v...)}
	for _, a := range v {
		if e, ok := a.(error); ok {
			err.cause = e
		}
	}
	l.mu.Lock()
	returned := l.fatal == nil && !l.running
	if l.fatal == nil {
		l.fatal = err
	}
	l.mu.Unlock()
	if !returned {
		l.write(slog.LevelError, format, v)
	}
}

// fatalError is what the server said when it gave up, with the error it named.
type fatalError struct {
	text  string
	cause error
}

func (e fatalError) Error() string { return e.text }
func (e fatalError) Unwrap() error { return e.cause }

// failure returns the first fatal error, nil if there was none.
func (l *logger) failure() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.fatal
}

// started says that the server runs: nobody asks for a fatal error any more. It
// returns the one that came before, nil if there was none.
func (l *logger) started() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running = l.fatal == nil
	return l.fatal
}

func (l *logger) write(level slog.Level, format string, v []any) {
	ctx := context.Background()
	if !l.to.Enabled(ctx, level) {
		return
	}
	text := strings.Trim(fmt.Sprintf(format, v...), " -\t\r\n") // headings are drawn with dashes
	if text == "" {
		return
	}
	dropped, ok := l.allow(level, text)
	if !ok {
		return
	}
	attrs := []slog.Attr{slog.String("text", text)}
	if dropped > 0 {
		attrs = append(attrs, slog.Int("dropped", dropped))
	}
	l.to.LogAttrs(ctx, level, "NATS server", attrs...)
}

// allow reports whether a line may be written, and how many of its kind were
// dropped since the last one that was.
func (l *logger) allow(level slog.Level, text string) (dropped int, ok bool) {
	key := level.String() + withoutDigits(text)
	now := l.now()
	l.mu.Lock()
	defer l.mu.Unlock()
	k := l.kinds[key]
	if k == nil {
		if len(l.kinds) >= maxKinds {
			for other, k := range l.kinds {
				if now.Sub(k.written) >= quiet {
					delete(l.kinds, other)
				}
			}
			if len(l.kinds) >= maxKinds {
				clear(l.kinds)
			}
		}
		l.kinds[key] = &kind{written: now}
		return 0, true
	}
	if now.Sub(k.written) < quiet {
		k.dropped++
		return 0, false
	}
	dropped = k.dropped
	*k = kind{written: now}
	return dropped, true
}

// withoutDigits replaces each run of digits by one 0.
func withoutDigits(s string) string {
	var b strings.Builder
	b.Grow(len(s))
	digit := false
	for i := 0; i < len(s); i++ {
		c := s[i]
		if '0' <= c && c <= '9' {
			if !digit {
				b.WriteByte('0')
			}
			digit = true
			continue
		}
		digit = false
		b.WriteByte(c)
	}
	return b.String()
}
