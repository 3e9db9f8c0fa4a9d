package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

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
// end holds other messages than the table under the same numbers. It is ErrRestored if the
// table is of a backup and has not caught up: then it may lack numbers that were seen.
func (m *Materializer) putBack(ctx context.Context, last, table uint64) (uint64, error) {
	if m.restoredTo.Load() != nil {
		return 0, restoredError(last, table)
	}
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
		numbers, voids := numbersToPutBack(rows, last, table)
		end := last + uint64(len(numbers))
		switch err := m.out.appendAll(last, numbers); {
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

// numbersToPutBack returns the rows of the numbers after last up to table, nil for
// one whose row is gone, as many as one atomic batch takes; voids are the numbers of
// the latter. rows are the table's next ones; the numbers behind the last of them may
// have rows that were not read yet, unless there is none left.
func numbersToPutBack(rows []store.Row, last, table uint64) (numbers []*store.Row, voids []uint64) {
	end := table
	if len(rows) > 0 {
		end = min(table, rows[len(rows)-1].Seq)
	}
	for n := last + 1; n <= end && len(numbers) < maxAppendMessages; n++ {
		if len(rows) > 0 && rows[0].Seq == n {
			numbers = append(numbers, &rows[0])
			rows = rows[1:]
			continue
		}
		numbers = append(numbers, nil)
		voids = append(voids, n)
	}
	return numbers, voids
}
