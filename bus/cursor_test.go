package bus_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
)

func TestParseCursor(t *testing.T) {
	for text, want := range map[string]bus.Cursor{
		"0":                       {},
		"5":                       {Seq: 5},
		"9223372036854775807":     {Seq: bus.MaxSeq},
		"abc:5":                   {Epoch: "abc", Seq: 5},
		"abc:9223372036854775807": {Epoch: "abc", Seq: bus.MaxSeq},
		strings.Repeat("e", 64) + ":0": {
			Epoch: strings.Repeat("e", 64),
		},
	} {
		got, err := bus.ParseCursor("after_seq", text)
		require.NoError(t, err, text)
		require.Equal(t, want, got)
		require.Equal(t, text, got.String())
	}
}

// A malformed cursor is refused with the field's name, never read as another
// place (B46). An absent one is the caller's affair: it is not a cursor.
func TestParseCursor_Malformed(t *testing.T) {
	for _, text := range []string{
		"", "bad", "-1", "+1", "1.5", "0x10", "1e3", " 5", "5 ", "5,6", "5\n", "٥",
		"9223372036854775808", "18446744073709551616", strings.Repeat("9", 10<<10),
		":5", "abc:", "abc:-1", "abc:x", "a:b:5", "5:", strings.Repeat("e", 65) + ":5",
	} {
		got, err := bus.ParseCursor("Last-Event-ID", text)
		requireInvalid(t, err, "", "Last-Event-ID", "%q", text)
		require.Zero(t, got, "%q", text)
	}
}

func FuzzParseCursor(f *testing.F) {
	for _, text := range []string{"5", "a:5", ":5", "05", "9223372036854775808"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		c, err := bus.ParseCursor("after_seq", text)
		if err != nil {
			return
		}
		require.LessOrEqual(t, c.Seq, uint64(bus.MaxSeq))
		again, err := bus.ParseCursor("after_seq", c.String())
		require.NoError(t, err)
		require.Equal(t, c, again)
	})
}
