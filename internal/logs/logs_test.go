package logs_test

import (
	"bytes"
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/logs"
)

// Of the same trouble one line a second is written, which says how many were not; other
// messages and levels, information and debugging are not held up by it.
func TestLimit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		next, err := logs.Handler(&out, logs.Text, slog.LevelDebug, false)
		require.NoError(t, err)
		log := slog.New(logs.Limit(next))
		lines := func() []string {
			defer out.Reset()
			var lines []string
			for line := range strings.Lines(out.String()) {
				_, line, _ = strings.Cut(strings.TrimSpace(line), " ")
				lines = append(lines, line)
			}
			return lines
		}
		for i := range 100 { // 10 s of it
			log.Warn("no answer", "try", i)
			log.With("part", "p").WithGroup("g").Warn("no answer", "try", i)
			time.Sleep(100 * time.Millisecond)
		}
		got := lines()
		require.Len(t, got, 10)
		require.Equal(t, `level=WARN msg="no answer" try=0`, got[0])
		require.Equal(t, `level=WARN msg="no answer" try=10 suppressed=19`, got[1])

		log.Error("no answer")
		log.Warn("another")
		for range 3 {
			log.Info("begun")
			log.Debug("event")
		}
		require.Len(t, lines(), 8)
	})
}

// A clock that is set back silences nothing.
func TestLimit_ClockSetBack(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	h := logs.Limit(slog.NewTextHandler(&out, nil))
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, when := range []time.Time{at, at.Add(-time.Hour), at.Add(-time.Hour + time.Millisecond)} {
		require.NoError(t, h.Handle(t.Context(), slog.NewRecord(when, slog.LevelWarn, "x", 0)))
	}
	require.Equal(t, 2, strings.Count(out.String(), "msg=x"))
}

// Many messages do not grow the memory, and none is lost for it.
func TestLimit_ManyKinds(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := slog.New(logs.Limit(slog.NewTextHandler(&out, nil)))
	for i := range 3000 {
		log.Warn(strings.Repeat("x", i+1))
	}
	require.Equal(t, 3000, strings.Count(out.String(), "\n"))
}

// A terminal gets text, everything else JSON, unless the format is named.
func TestHandler(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		format         string
		terminal, json bool
	}{
		{logs.Auto, true, false}, {logs.Auto, false, true}, {logs.Text, false, false}, {logs.JSON, true, true},
	} {
		var out bytes.Buffer
		h, err := logs.Handler(&out, c.format, slog.LevelInfo, c.terminal)
		require.NoError(t, err)
		log := slog.New(h)
		log.Debug("not there")
		log.Info("there", "n", 1)
		require.Equal(t, 1, strings.Count(out.String(), "\n"))
		require.Equal(t, c.json, json.Valid(out.Bytes()), out.String())
	}
	_, err := logs.Handler(nil, "xml", slog.LevelInfo, true)
	require.ErrorContains(t, err, `auto, text or json, not "xml"`)
}
