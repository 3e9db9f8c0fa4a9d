package readers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/url"
	"strconv"
	"time"

	"github.com/skaldbus/skald/internal/sse"
)

// reader is a client of one stream.
type reader struct {
	conn net.Conn
	d    *sse.Decoder
	seqs []uint64
	at   []time.Time // when each was received
}

// follow opens a stream, of a workspace unless it is "", and returns when its head is
// there. It speaks HTTP/1.0, whose bodies are not in chunks, so that on a machine that
// does both sides the client costs little.
func follow(ctx context.Context, address, workspace string, room int) (*reader, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("open stream: %w", err)
	}
	path := "/api/v1/events"
	if workspace != "" {
		path += "?workspace_id=" + url.QueryEscape(workspace)
	}
	if _, err = fmt.Fprintf(conn, "GET %s HTTP/1.0\r\nAccept: text/event-stream\r\n\r\n", path); err == nil {
		head := make([]byte, len("HTTP/1.0 200"))
		if _, err = io.ReadFull(conn, head); err == nil && string(head[9:]) != "200" {
			err = fmt.Errorf("status %s", head[9:])
		}
	}
	if err != nil {
		conn.Close()
		return nil, fmt.Errorf("open stream: %w", err)
	}
	// The rest of the head reads as fields that mean nothing.
	return &reader{conn: conn, d: sse.NewDecoder(conn), seqs: make([]uint64, 0, room), at: make([]time.Time, 0, room)}, nil
}

// read collects n facts.
func (r *reader) read(n int) error {
	for len(r.seqs) < n {
		e, err := r.d.Next()
		if err != nil {
			return fmt.Errorf("read stream after %d of %d facts: %w", len(r.seqs), n, err)
		}
		seq, err := strconv.ParseUint(e.ID, 10, 64)
		if err != nil || e.Name == "stream_error" {
			return fmt.Errorf("event %s after %d of %d facts: %s", e.Name, len(r.seqs), n, e.Data)
		}
		r.seqs, r.at = append(r.seqs, seq), append(r.at, time.Now())
	}
	return nil
}
