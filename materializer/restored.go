package materializer

import (
	"context"
	"errors"
	"fmt"
	"log/slog"

	"github.com/skaldbus/skald/materializer/store"
)

// ErrRestored: the store came out of a backup, and EVENTS has lost what came after that.
// Numbers beyond the table may have been seen, and nobody can say what stood under them: in
// the same epoch they would mean something else from now on.
var ErrRestored = errors.New("the store was restored, and EVENTS has lost what came after the backup")

// A store that came out of a backup lacks what came after it, and what readers have seen of
// that only EVENTS can tell. So it is marked (store.SetRestored) until its table has come as
// far as EVENTS ended when they were found to belong together. As long as it is marked,
// EVENTS is not given its end again from the table: a Repairer does that, under a new epoch.

// checkRestored looks at EVENTS, which ends at last and was compared with the table, for a
// store that may have been restored.
func (m *Materializer) checkRestored(ctx context.Context, pos store.Position, last uint64) error {
	restored, err := m.reader.Restored(ctx)
	if err != nil {
		return err
	}
	if !restored {
		return nil
	}
	if last < pos.EventsSeq {
		return restoredError(last, pos.EventsSeq)
	}
	if m.restoredTo.Load() == nil {
		m.restoredTo.Store(&last)
	}
	m.settleRestored(ctx, pos)
	return nil
}

func restoredError(last, table uint64) error {
	return fmt.Errorf("%w: EVENTS ends at %d, the backup at %d; stop, and run skald repair, which puts the rows back and gives the numbers a new epoch",
		ErrRestored, last, table)
}

// settleRestored takes the mark away from a store that has come as far as it has to. It is
// called after each commit; what can not be written is tried again with the next.
func (m *Materializer) settleRestored(ctx context.Context, pos store.Position) {
	to := m.restoredTo.Load()
	if to == nil || pos.EventsSeq < *to {
		return
	}
	if err := m.o.Store.SetRestored(context.WithoutCancel(ctx), false); err != nil {
		m.log.Warn("it is not noted that the restored store has come as far as EVENTS", slog.Any("err", err))
		return
	}
	m.restoredTo.Store(nil)
	m.log.Info("the restored store has come as far as EVENTS", slog.Uint64("seq", pos.EventsSeq))
}
