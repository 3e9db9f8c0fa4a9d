package materializer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/materializer/store"
)

// sideBySide walks the table and EVENTS together, number by number, and holds little
// of either in memory. The table is read in pieces, each of its own snapshot, so
// that no reader keeps the store's log from being cut.
type sideBySide struct {
	m     *Materializer
	tail  *tail
	last  uint64 // EVENTS is read up to here
	limit uint64 // the table is read up to here
	seq   uint64 // the last number that was looked at

	rows []store.Row // read ahead
	read uint64      // the table was read up to here
	done bool        // the table has no more
}

// sideBySide begins after a number. EVENTS is read up to last, the table up to limit.
func (m *Materializer) sideBySide(after, last, limit uint64) *sideBySide {
	return &sideBySide{m: m, last: last, limit: limit, seq: after, read: after}
}

func (s *sideBySide) close() { s.tail.close() }

// next returns the lowest number after the one before that the table or EVENTS has,
// with what each has there; 0 at the end of both.
func (s *sideBySide) next(ctx context.Context) (seq uint64, row *store.Row, e *entry, err error) {
	if err := s.fill(ctx); err != nil {
		return 0, nil, nil, err
	}
	if e, err = s.peek(ctx); err != nil {
		return 0, nil, nil, err
	}
	if len(s.rows) > 0 {
		row = &s.rows[0]
	}
	switch {
	case row == nil && e == nil:
		return 0, nil, nil, nil
	case e == nil || row != nil && row.Seq < e.seq:
		e, seq = nil, row.Seq
	case row == nil || e.seq < row.Seq:
		row, seq = nil, e.seq
	default:
		seq = row.Seq
	}
	if row != nil {
		s.rows = s.rows[1:]
	}
	if e != nil {
		s.tail.take()
	}
	s.seq = seq
	return seq, row, e, nil
}

// fill reads the table's next rows.
func (s *sideBySide) fill(ctx context.Context) (err error) {
	if len(s.rows) > 0 || s.done {
		return nil
	}
	if s.rows, err = s.m.reader.Rows(ctx, s.read, maxAppendMessages, maxAppendBytes/2); err != nil {
		return fmt.Errorf("read rows after %d: %w", s.read, err)
	}
	for len(s.rows) > 0 && s.rows[len(s.rows)-1].Seq > s.limit {
		s.rows = s.rows[:len(s.rows)-1]
	}
	if len(s.rows) == 0 {
		s.done = true
		return nil
	}
	s.read = s.rows[len(s.rows)-1].Seq
	return nil
}

// peek reads EVENTS on, and begins again where it was when the server stopped
// answering for a moment.
func (s *sideBySide) peek(ctx context.Context) (*entry, error) {
	if s.seq >= s.last && (s.tail == nil || s.tail.next == nil) {
		return nil, nil
	}
	var wait backoff
	for tries := 1; ; tries++ {
		var err error
		if s.tail == nil {
			s.tail, err = s.m.openTail(ctx, s.seq+1, s.last)
		}
		if err == nil {
			var e *entry
			if e, err = s.tail.peek(ctx); err == nil {
				return e, nil
			}
		}
		s.tail.close()
		s.tail = nil
		if tries == 6 || ctx.Err() != nil || errors.Is(err, jetstream.ErrStreamNotFound) {
			return nil, err
		}
		s.m.log.Warn("reading EVENTS is interrupted", slog.Uint64("seq", s.seq), slog.Any("err", err))
		if err := wait.wait(ctx); err != nil {
			return nil, err
		}
	}
}

// unlike names in what a row and the message under its number differ, "" if they are
// the same fact to the byte.
func unlike(row *store.Row, e *entry) string {
	if !e.ours {
		if e.void {
			return "message (an empty one that only takes a number)"
		}
		return "message (no materializer wrote it, or its body was changed)"
	}
	r := &e.row
	var parts []string
	note := func(name string, differs bool) {
		if differs {
			parts = append(parts, name)
		}
	}
	note("session", row.Key != r.Key)
	note("type", row.Type != r.Type)
	note("recorded_at_ms", row.RecordedAt != r.RecordedAt)
	note("origin", row.Origin != r.Origin)
	note("source", row.Source != r.Source)
	note("traceparent", row.Trace != r.Trace)
	note("data", !bytes.Equal(row.Data, r.Data))
	if len(parts) == 0 {
		note("body", !bytes.Equal(appendWire(nil, row), e.body))
	}
	return strings.Join(parts, ", ")
}
