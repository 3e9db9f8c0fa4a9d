//go:build unix

package main

import (
	"bytes"
	"context"
	"encoding/json"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/logs"
	"github.com/skaldbus/skald/internal/skaldtest"
)

// Away from a terminal lines are JSON, apart from the greeting; nothing of a message and
// no password is ever in them; each summary says how it goes.
func TestServe_Logs(t *testing.T) {
	t.Parallel()
	const canary, secret = "canary4711", "pa55word"
	conf := write(t, "nats.conf", "authorization { users: [ { user: me, password: "+secret+" } ] }")
	p := startServe(t, t.TempDir(), "--nats-config", conf, "--user", "me", "--password", secret, "--log-level", "debug")
	nc, err := nats.Connect(p.nats, nats.UserInfo("me", secret))
	require.NoError(t, err)
	defer nc.Close()
	for _, body := range []string{`{"message":"` + canary + `"}`, "no JSON " + canary} {
		_, err := nc.Request("skald.in.w.s.error", []byte(body), skaldtest.Timeout)
		require.NoError(t, err)
	}
	p.settle()
	p.stop()
	require.NotContains(t, p.text(), canary)
	require.NotContains(t, p.text(), secret)
	messages := map[string]bool{}
	for line := range strings.Lines(p.text()) {
		if !strings.HasPrefix(line, "{") {
			continue
		}
		var l struct{ Time, Level, Msg string }
		require.NoError(t, json.Unmarshal([]byte(line), &l), line)
		require.NotEmpty(t, l.Time)
		messages[l.Msg] = true
	}
	for _, m := range []string{"store made", "serving", "stopped"} {
		require.Contains(t, messages, m)
	}
	require.NotContains(t, p.text(), "level=")
}

// The log says now and then how it goes.
func TestSummary(t *testing.T) {
	t.Parallel()
	var stderr locked
	e := env{stderr: &stderr}
	var o serveOptions
	require.NoError(t, o.flags().Parse([]string{
		"--data", t.TempDir(), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--ingest-max-bytes", "100000000", "--sync-interval", "1m",
	}))
	o.summarize = time.Millisecond
	log, err := logs.Handler(&stderr, logs.JSON, slog.LevelInfo, false)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(short(t))
	ended := make(chan error, 1)
	go func() { ended <- serve(ctx, e, o, slog.New(log), slog.New(slog.DiscardHandler)) }()
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool {
		return strings.Contains(stderr.String(), `"msg":"summary","ingest_position":0,"events_position":0,"lag_messages":0,"lag":0,`) &&
			strings.Contains(stderr.String(), `"stream_readers":0,"slow_readers":0,"failing":""`)
	}, "a summary of a bus that is well")
	cancel()
	require.NoError(t, <-ended)
}

// locked is a buffer for several goroutines.
type locked struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *locked) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *locked) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
