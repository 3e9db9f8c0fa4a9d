package projection_test

import (
	"go/parser"
	"go/token"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// The projection is pure: its sources import the contract and packages that read
// no clock, draw nothing at random and do no I/O.
func TestImports(t *testing.T) {
	pure := map[string]bool{
		"github.com/skaldbus/skald/bus": true,
		"cmp":                           true, "bytes": true, "crypto/sha256": true, "encoding/binary": true, "encoding/hex": true, "encoding/json": true,
		"errors": true, "fmt": true, "slices": true, "strconv": true, "strings": true, "unicode": true, "unicode/utf8": true,
	}
	files, err := filepath.Glob("*.go")
	require.NoError(t, err)
	read := 0
	for _, name := range files {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		read++
		f, err := parser.ParseFile(token.NewFileSet(), name, nil, parser.ImportsOnly)
		require.NoError(t, err)
		for _, i := range f.Imports {
			path, err := strconv.Unquote(i.Path.Value)
			require.NoError(t, err)
			require.True(t, pure[path], "%s imports %s", name, path)
		}
	}
	require.Greater(t, read, 10)
}
