package skaldtest

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// ReplaceFile gives the file another content, or makes it. A program that reads it at any
// time sees the old content or the new one, never a part.
func ReplaceFile(t testing.TB, path string, content []byte) {
	t.Helper()
	require.NoError(t, os.WriteFile(path+".new", content, 0o600))
	require.NoError(t, os.Rename(path+".new", path))
}
