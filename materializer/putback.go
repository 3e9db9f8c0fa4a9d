package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/materializer/store"
)

// putBack gives EVENTS, which ends at last, the table's rows up to the number
// table again, under the same numbers: a server that lost what it had
// acknowledged must not give a number that was seen another meaning. A number
// whose row is gone is taken by an empty message that is removed at once. It
// returns where EVENTS ends then. Another materializer may do the same at the
// same time: each append names the end it expects, and the rows are equal.
//
// The error is ErrEventsDiffer if EVENTS has gone on with something else: then its
// end holds other messages than the table under the same numbers.
func (m *Materializer) putBack(ctx context.Context, last, table uint64) (uint64, error) {
	if err := m.compareLastRow(ctx, last); err != nil {
		return 0, err
	}
	m.health.set(checkEvents, fmt.Sprintf("EVENTS has lost its end: it ends at %d, the table at %d; the rows are put back", last, table))
	m.log.Error("EVENTS has lost its end; the table's rows are put back", slog.Uint64("events_last", last), slog.Uint64("table", table))
	for last < table {
		rows, err := m.reader.Rows(ctx, last, maxAppendMessages, maxAppendBytes/2)
		if err != nil {
			return 0, fmt.Errorf("read rows to put back: %w", err)
		}
		msgs, voids := m.putBackBatch(rows, last, table)
		end := last + uint64(len(msgs))
		sent, err := m.startAppend(msgs, last)
		if err != nil {
			return 0, err
		}
		switch err := sent.wait(); {
		case err == nil:
		case errors.Is(err, errLostRace):
			if end, err = m.eventsLast(ctx); err != nil {
				return 0, err
			}
		default:
			return 0, err
		}
		for _, n := range voids {
			if err := m.removeMessage(ctx, n, nil); err != nil {
				return 0, err
			}
		}
		if end < last {
			return 0, fmt.Errorf("%w: EVENTS ended at %d and now at %d", ErrEventsDiffer, last, end)
		}
		last = end
	}
	if err := m.compareLastRow(ctx, table); err != nil {
		return 0, err
	}
	m.health.set(checkEvents, "")
	return last, nil
}

// putBackBatch builds the messages of the numbers after last up to table, at most
// one atomic batch of them. rows are the table's next ones; the numbers behind the
// last of them may have rows that were not read yet, unless there is none left.
func (m *Materializer) putBackBatch(rows []store.Row, last, table uint64) (msgs []*nats.Msg, voids []uint64) {
	end := table
	if len(rows) > 0 {
		end = min(table, rows[len(rows)-1].Seq)
	}
	for n := last + 1; n <= end && len(msgs) < maxAppendMessages; n++ {
		if len(rows) > 0 && rows[0].Seq == n {
			msgs = append(msgs, m.eventMessage(&rows[0]))
			rows = rows[1:]
			continue
		}
		msgs = append(msgs, &nats.Msg{Subject: m.o.Subjects.Void(), Header: nats.Header{}})
		voids = append(voids, n)
	}
	return msgs, voids
}
