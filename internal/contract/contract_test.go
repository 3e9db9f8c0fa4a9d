package contract_test

import (
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// originals is where the originals are, seen from this folder, if they are.
const originals = "../../../shared"

// The copies are the originals, byte for byte, and none is missing.
func TestCopies(t *testing.T) {
	for _, c := range []struct {
		from, to string
		own      []string // files of the copy's folder that are no copies
	}{
		{filepath.Join(originals, "contract"), ".", []string{"doc.go", "contract_test.go"}},
		{filepath.Join(originals, "conformance"), "../conformance", nil},
	} {
		t.Run(filepath.Base(c.from), func(t *testing.T) {
			entries, err := os.ReadDir(c.from)
			if errors.Is(err, fs.ErrNotExist) {
				t.Logf("no originals in %s", c.from)
				return
			}
			require.NoError(t, err)
			require.NotEmpty(t, entries)
			want := append([]string{}, c.own...)
			for _, e := range entries {
				original, err := os.ReadFile(filepath.Join(c.from, e.Name()))
				require.NoError(t, err)
				copied, err := os.ReadFile(filepath.Join(c.to, e.Name()))
				require.NoError(t, err)
				require.True(t, string(original) == string(copied), "%s differs from its original", e.Name())
				want = append(want, e.Name())
			}
			have, err := os.ReadDir(c.to)
			require.NoError(t, err)
			var names []string
			for _, e := range have {
				names = append(names, e.Name())
			}
			require.ElementsMatch(t, want, names)
		})
	}
}

// The cases are where the program that runs them looks for them, and readable.
func TestCases(t *testing.T) {
	b, err := os.ReadFile("../conformance/../contract/acceptance.json")
	require.NoError(t, err)
	var acceptance struct {
		Cases []struct {
			ID    string
			Steps []map[string]json.RawMessage
		}
	}
	require.NoError(t, json.Unmarshal(b, &acceptance))
	require.NotEmpty(t, acceptance.Cases)
	seen := map[string]bool{}
	for _, c := range acceptance.Cases {
		require.NotEmpty(t, c.ID)
		require.False(t, seen[c.ID], c.ID)
		require.NotEmpty(t, c.Steps, c.ID)
		seen[c.ID] = true
	}
}
