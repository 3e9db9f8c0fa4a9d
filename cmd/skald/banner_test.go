package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The commands that the banner proposes call what can be called again: what "go run"
// builds is not, wherever it keeps it.
func TestProgram(t *testing.T) {
	t.Parallel()
	hash := "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef"
	for executable, want := range map[string]string{
		"/tmp/go-build1234567/b001/exe/skald":              "go run ./cmd/skald",
		"/home/me/.cache/go-build/ab/" + hash + "-d/skald": "go run ./cmd/skald",
		"/elsewhere/ab/" + hash + "-d/skald":               "go run ./cmd/skald",
		"/usr/local/bin/skald":                             "'./sk ald'",
		"/home/me/go-builds":                               "'./sk ald'",
		"/srv/" + hash + "/skald":                          "'./sk ald'",
		"/srv/skald-d/skald":                               "'./sk ald'",
		"":                                                 "'./sk ald'",
	} {
		require.Equal(t, want, program("./sk ald", executable), executable)
	}
	require.Equal(t, "skald", program("", "/usr/local/bin/skald"))
	require.Equal(t, "/opt/skald", program("/opt/skald", "/opt/skald"))
}
