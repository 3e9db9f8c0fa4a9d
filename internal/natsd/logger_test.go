package natsd

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// lines returns a logger on a clock of its own, and what it has written.
func lines(level slog.Level) (*logger, *time.Time, func() []string) {
	var b bytes.Buffer
	l := newLogger(slog.New(slog.NewTextHandler(&b, &slog.HandlerOptions{
		Level: level,
		ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
			if a.Key == slog.TimeKey {
				return slog.Attr{}
			}
			return a
		},
	})))
	now := time.Unix(1000, 0)
	l.now = func() time.Time { return now }
	return l, &now, func() []string {
		out := strings.Split(strings.TrimSpace(b.String()), "\n")
		b.Reset()
		return out
	}
}

// Levels are kept, decoration is not.
func TestLogger_Levels(t *testing.T) {
	l, _, written := lines(slog.LevelDebug - 4)
	l.Noticef("  Version:  %s", "2.15.3")
	l.Noticef("-------------------------------------------")
	l.Noticef("")
	l.Warnf("slow %s", "consumer")
	l.Errorf("bad")
	l.Debugf("detail")
	l.Tracef("more")
	require.NoError(t, l.started())
	l.Fatalf("the end")
	require.Equal(t, []string{
		`level=INFO msg="NATS server" text="Version:  2.15.3"`,
		`level=WARN msg="NATS server" text="slow consumer"`,
		`level=ERROR msg="NATS server" text=bad`,
		`level=DEBUG msg="NATS server" text=detail`,
		`level=DEBUG-4 msg="NATS server" text=more`,
		`level=ERROR msg="NATS server" text="the end"`,
	}, written())
}

// A flood of lines that differ in numbers only is one line a second, which says
// how many it stands for.
func TestLogger_OneLineASecond(t *testing.T) {
	l, now, written := lines(slog.LevelInfo)
	for i := range 100 {
		l.Errorf("10.0.0.%d:%d - cid:%d - TLS handshake error", i, 40000+i, i)
	}
	l.Warnf("10.0.0.1:1 - cid:1 - TLS handshake error") // another level is another kind
	require.Equal(t, []string{
		`level=ERROR msg="NATS server" text="10.0.0.0:40000 - cid:0 - TLS handshake error"`,
		`level=WARN msg="NATS server" text="10.0.0.1:1 - cid:1 - TLS handshake error"`,
	}, written())

	*now = now.Add(quiet)
	l.Errorf("10.0.0.9:9 - cid:999 - TLS handshake error")
	l.Errorf("another text")
	require.Equal(t, []string{
		`level=ERROR msg="NATS server" text="10.0.0.9:9 - cid:999 - TLS handshake error" dropped=99`,
		`level=ERROR msg="NATS server" text="another text"`,
	}, written())

	*now = now.Add(quiet)
	l.Errorf("10.0.0.9:9 - cid:999 - TLS handshake error")
	require.NotContains(t, written()[0], "dropped")
}

// What is remembered of written lines is bounded, however many kinds there are.
func TestLogger_Bounded(t *testing.T) {
	l, now, _ := lines(slog.LevelInfo)
	for i := range 3 * maxKinds {
		l.Errorf("kind %s", strings.Repeat("x", i))
		require.LessOrEqual(t, len(l.kinds), maxKinds)
		*now = now.Add(time.Millisecond)
	}
}

// The first fatal error is kept with the error that it names, and left to Start to
// tell; those after it, and after the start, are written.
func TestLogger_Fatal(t *testing.T) {
	l, _, written := lines(slog.LevelError)
	require.NoError(t, l.failure())
	cause := fmt.Errorf("deep: %w", context.DeadlineExceeded)
	l.Fatalf("Can't start JetStream: %v", cause)
	require.Equal(t, []string{""}, written())
	l.Fatalf("second")
	require.Equal(t, []string{`level=ERROR msg="NATS server" text=second`}, written())
	require.Equal(t, l.failure(), l.started())
	require.EqualError(t, l.failure(), "Can't start JetStream: deep: context deadline exceeded")
	require.True(t, errors.Is(l.failure(), context.DeadlineExceeded))
}
