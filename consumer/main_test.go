package consumer_test

import (
	"os"
	"testing"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// TestMain fails if a test leaves a goroutine: Run promises that none outlives it.
// A test that needs a process of its own to kill starts this one again.
func TestMain(m *testing.M) {
	if os.Getenv(envChild) != "" {
		os.Exit(child())
	}
	skaldtest.VerifyLeaks(m)
}
