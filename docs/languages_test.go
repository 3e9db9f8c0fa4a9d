package docs_test

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

// The digests that the page gives to test against are those of the contract's
// vectors, and those that the code computes.
func TestLanguages_Vectors(t *testing.T) {
	text, err := os.ReadFile("other-languages.md")
	require.NoError(t, err)
	known, err := os.ReadFile("../internal/contract/digest-vectors.json")
	require.NoError(t, err)
	var all struct {
		Vectors []struct {
			Digest      string
			Observation string `json:"observation_bytes"`
		}
	}
	require.NoError(t, json.Unmarshal(known, &all))
	vectors := map[string]string{}
	for _, v := range all.Vectors {
		vectors[v.Digest] = v.Observation
	}
	rows := 0
	for line := range strings.Lines(string(text)) {
		cells := strings.Split(line, "|")
		if len(cells) != 9 || !strings.Contains(line, `{"type"`) {
			continue
		}
		for i := range cells {
			cells[i] = strings.Trim(cells[i], " `")
		}
		previous := ""
		if cells[3] == "64 zeros" {
			previous = strings.Repeat("0", 64)
		}
		page, err := bus.ParsePage([]byte(`{"events":[{"format":` + cells[1] + `,"ordinal":` + cells[2] + `,"previous_digest":"` + previous +
			`","recorded_at_ms":` + cells[4] + `,"observation":` + cells[6] + `,"digest":"` + cells[7] + `"}]}`))
		require.NoError(t, err)
		_, _, err = page.Events[0].Verify(bus.Digest{}, nil)
		require.NoError(t, err)
		require.Equal(t, vectors[cells[7]], cells[6])
		rows++
	}
	require.Equal(t, 2, rows)
}

// What the page says of the examples is there.
func TestLanguages_Names(t *testing.T) {
	text, err := os.ReadFile("other-languages.md")
	require.NoError(t, err)
	for file, names := range map[string][]string{
		"skald.js":   {"export function token(", "export function digest("},
		"session.js": {"async settle("},
		"facts.js":   {"max_ack_pending: 1"},
		"pages.js":   {"after:", "workspace:"},
		"service.js": {"export async function ask("},
		"worker.js":  {"session:", "workspace:", "turns:"},
		"reader.js":  {"durable:", "workspace:"},
	} {
		code, err := os.ReadFile(filepath.Join("../examples/js", file))
		require.NoError(t, err)
		for _, n := range names {
			require.Contains(t, string(code), n, file)
		}
	}
	require.Contains(t, string(text), "examples/js/facts.js")
}
