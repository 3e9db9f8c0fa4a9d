package skaldtest

import (
	"os"
	"os/exec"
	"testing"
)

// Need skips the test unless have holds, and says what is missing. Where
// SKALD_TEST_NO_SKIP is set, as in .ci/run, it fails the test instead.
func Need(t testing.TB, have bool, what string) {
	t.Helper()
	switch {
	case have:
	case os.Getenv("SKALD_TEST_NO_SKIP") != "":
		t.Fatalf("missing: %s", what)
	default:
		t.Skipf("missing: %s", what)
	}
}

// NeedProgram is [Need] for a program in PATH, and returns its path.
func NeedProgram(t testing.TB, name string) string {
	t.Helper()
	path, err := exec.LookPath(name)
	Need(t, err == nil, name+" in PATH")
	return path
}

// NeedPath is [Need] for a file or directory; hint says how it comes to be there.
func NeedPath(t testing.TB, path, hint string) {
	t.Helper()
	_, err := os.Stat(path)
	Need(t, err == nil, path+" ("+hint+")")
}
