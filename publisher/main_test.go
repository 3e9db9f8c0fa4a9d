package publisher_test

import (
	"testing"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// TestMain fails if a test leaves a goroutine: Run promises that none outlives it.
func TestMain(m *testing.M) {
	skaldtest.VerifyLeaks(m)
}
