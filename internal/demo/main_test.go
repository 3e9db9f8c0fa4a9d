package demo_test

import (
	"testing"

	"github.com/skaldbus/skald/internal/skaldtest"
)

func TestMain(m *testing.M) { skaldtest.VerifyLeaks(m) }
