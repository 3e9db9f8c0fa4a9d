package sse_test

import (
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/sse"
)

// A stream is read as the standard says, however its bytes are cut.
func TestDecoder(t *testing.T) {
	const text = "\uFEFF: hello\nretry: 2000\n\n" +
		"id: 1\nevent: a\ndata: x\r\ndata:y\rdata:  z\n\n" +
		"event: lost\n\n" + // no data, no event
		"data\n\n" +
		"id: 2\x00\ndata: u\u2028v\nretry: +1\nretry: 1x\nother: field\nevent:\n\r\n" +
		"id\ndata: no id\n\n" +
		"data: never ended"
	want := []sse.Event{
		{ID: "1", Name: "a", Data: []byte("x\ny\n z")},
		{ID: "1", Name: "message", Data: nil},
		{ID: "1", Name: "message", Data: []byte("u\u2028v")},
		{ID: "", Name: "message", Data: []byte("no id")},
	}
	for name, r := range map[string]io.Reader{
		"whole": strings.NewReader(text), "bytes": iotest.OneByteReader(strings.NewReader(text)), "halves": iotest.HalfReader(strings.NewReader(text)),
	} {
		d := sse.NewDecoder(r)
		for _, e := range want {
			got, err := d.Next()
			require.NoError(t, err, name)
			require.Equal(t, e.ID, got.ID, name)
			require.Equal(t, e.Name, got.Name, name)
			require.Equal(t, string(e.Data), string(got.Data), name)
		}
		_, err := d.Next()
		require.Equal(t, io.EOF, err, name)
		require.Equal(t, 2*time.Second, d.Retry(), name)
		require.Equal(t, 1, d.Comments(), name)
	}
}

// An event without an end is not collected for ever, and a broken connection is told
// from an end.
func TestDecoder_Errors(t *testing.T) {
	endless := strings.Repeat("data: "+strings.Repeat("x", 1<<20)+"\n", 65)
	_, err := sse.NewDecoder(strings.NewReader(endless)).Next()
	require.ErrorIs(t, err, sse.ErrTooLarge)
	broken := errors.New("broken")
	_, err = sse.NewDecoder(iotest.ErrReader(broken)).Next()
	require.ErrorIs(t, err, broken)
}
