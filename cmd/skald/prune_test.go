//go:build unix

package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// A prune by number and by age: what lies below leaves the table at once, sessions stay,
// and a cursor below learns of it.
func TestPrune(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	p := startServe(t, dir)
	prune := func(args ...string) result { return cli(append([]string{"prune", "--server", p.nats}, args...)...) }
	p.publish("w", "s", 10)
	p.settle()
	for _, args := range [][]string{
		{}, {"--before-seq", "0"}, {"--before-seq", "9223372036854775808"}, {"--before-seq", "3", "--older-than", "1h"},
		{"--older-than", "soon"}, {"--older-than=-1h"}, {"--before-seq", "3", "--wait=-1s"}, {"3"},
	} {
		prune(args...).fails(t, exitUsage)
	}
	require.Equal(t, "nothing to prune, the oldest kept is 1\n", prune("--before-seq", "1").ok(t))
	require.Equal(t, "nothing to prune, the oldest kept is 1\n", prune("--older-than", "1h").ok(t))
	require.Equal(t, "pruned, the oldest kept is 4\n", prune("--before-seq", "4").ok(t))
	require.Contains(t, p.get("/api/v1/status"), `"oldest_seq":4`)
	require.Contains(t, p.get("/api/v1/events?after_seq=1"), `"code":"cursor_gone"`)
	first := split(cli("events", "--data", dir, "--after-seq", "0").ok(t))[0]
	require.True(t, strings.HasPrefix(first, `{"seq":4,`), first)
	require.Equal(t, "nothing to prune, the oldest kept is 4\n", prune("--before-seq", "4").ok(t))

	require.Equal(t, "pruned, the oldest kept is 11\n", prune("--older-than", "0s").ok(t))
	skaldtest.Eventually(t, skaldtest.Timeout, func() bool { return strings.Contains(p.get("/api/v1/sessions/s"), `"count":0`) },
		"rows are counted that leave the table after they left its readers")
	p.publish("w", "s", 1)
	p.settle()
	require.Len(t, split(cli("events", "--data", dir, "--after-seq", "0").ok(t)), 1)
	p.stop()
	cli("prune", "--server", p.nats, "--before-seq", "12").fails(t, exitFailed, "check that the server runs")
}
