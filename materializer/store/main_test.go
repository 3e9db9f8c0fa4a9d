package store_test

import (
	"os"
	"testing"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// TestMain runs the tests, or plays another process in one of them.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(playChild(mode, os.Getenv(childPath)))
	}
	skaldtest.VerifyLeaks(m)
}
