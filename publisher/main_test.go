package publisher_test

import (
	"testing"

	"go.uber.org/goleak"
)

// TestMain fails if a test leaves a goroutine: Run promises that none outlives it.
func TestMain(m *testing.M) {
	goleak.VerifyTestMain(m)
}
