package store_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// TestMain runs the tests, or plays another process in one of them.
func TestMain(m *testing.M) {
	if mode := os.Getenv(childMode); mode != "" {
		os.Exit(playChild(mode, os.Getenv(childPath)))
	}
	goleak.VerifyTestMain(m)
}
