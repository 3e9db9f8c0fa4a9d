package materializer_test

import (
	"os"
	"testing"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// TestMain plays another process where it is told to, see crash_process_test.go. Else it
// fails if a test leaves a goroutine: Run promises that none outlives it.
func TestMain(m *testing.M) {
	if text := os.Getenv(partEnv); text != "" {
		os.Exit(playPart(text))
	}
	skaldtest.VerifyLeaks(m)
}
