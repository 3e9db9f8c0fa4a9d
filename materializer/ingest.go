package materializer

import (
	"bytes"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// movedError says that INGEST is not the stream that was read so far, or does not hold
// what comes next. It ends a round of the stages, not Run: see goback.go.
type movedError struct {
	reason bus.Reason
	what   string
}

func (e *movedError) Error() string { return e.what }

func moved(reason bus.Reason, what string, args ...any) error {
	return &movedError{reason: reason, what: fmt.Sprintf(what, args...)}
}

// hasMoved reports whether err says so.
func hasMoved(err error) bool {
	var m *movedError
	return errors.As(err, &m)
}

// markOf is the message by which INGEST is known again.
func markOf(msg *message) store.Mark {
	m := store.Mark{Seq: msg.Seq, Time: msg.Time}
	h := sha256.Sum256(msg.Body)
	copy(m.Hash[:], h[:])
	return m
}

func markAt(pos store.Position) store.Mark {
	return store.Mark{Seq: pos.IngestSeq, Time: pos.IngestTime, Hash: pos.IngestHash}
}

// compareIngest checks that INGEST is the stream with that id, and still holds the
// messages that were read. A message that was trimmed since says nothing.
func (m *Materializer) compareIngest(ctx context.Context, info *jetstream.StreamInfo, id string, read ...store.Mark) error {
	if now := info.Config.Metadata[bus.MetaIngestID]; now != id {
		return moved(bus.ReasonIngestRecreated, "INGEST is another stream: its id is %q, not %q", now, id)
	}
	for _, mark := range read {
		if info.State.LastSeq < mark.Seq {
			return moved(bus.ReasonIngestRolledBack, "INGEST ends at %d, and messages up to %d had been read", info.State.LastSeq, mark.Seq)
		}
		if mark.Time == 0 || mark.Seq < info.State.FirstSeq {
			continue
		}
		same, err := m.ingestHolds(ctx, mark)
		if err == nil && !same {
			// It may have been trimmed after info was asked for.
			same, err = m.ingestBeginsAfter(ctx, mark.Seq)
		}
		if err != nil {
			return err
		}
		if !same {
			return moved(bus.ReasonIngestRolledBack, "INGEST's message %d is not the one that had been read", mark.Seq)
		}
	}
	return nil
}

// ingestBeginsAfter reports whether INGEST begins after a sequence by now.
func (m *Materializer) ingestBeginsAfter(ctx context.Context, seq uint64) (bool, error) {
	info, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return false, fmt.Errorf("ask for the beginning of INGEST: %w", err)
	}
	return info.State.FirstSeq > seq, nil
}

// ingestHolds reports whether INGEST holds the message of a mark.
func (m *Materializer) ingestHolds(ctx context.Context, mark store.Mark) (bool, error) {
	raw, err := m.getMsg(ctx, m.o.Streams.Ingest, mark.Seq, false)
	if errors.Is(err, jetstream.ErrMsgNotFound) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("read INGEST %d: %w", mark.Seq, err)
	}
	h := sha256.Sum256(raw.Data)
	return raw.Time.UnixNano() == mark.Time && bytes.Equal(h[:len(mark.Hash)], mark.Hash[:]), nil
}

// checkRead is the reader's check, made when its consumer exists, and so belongs to
// the stream that is there now: that holds what the reader has read last, or the store
// has committed, and what comes next.
func (m *Materializer) checkRead(ctx context.Context, last uint64, in *intake) error {
	pos, _ := m.committed.get()
	mark := markAt(pos)
	if in.newest != nil {
		mark = markOf(in.newest)
	}
	info, err := m.o.Streams.Ingest.Info(ctx)
	if err != nil {
		return fmt.Errorf("ask for INGEST: %w", err)
	}
	if err := m.compareIngest(ctx, info, m.ingestID, mark); err != nil {
		return err
	}
	return beginsBehind(info, last)
}

// beginsBehind returns an error if INGEST's beginning is gone beyond the message after
// the sequence last.
func beginsBehind(info *jetstream.StreamInfo, last uint64) error {
	if first := info.State.FirstSeq; first > last+1 {
		return moved(bus.ReasonIngestTrimmed, "INGEST begins at %d: messages %d to %d are gone", first, last+1, first-1)
	}
	return nil
}
