package materializer

import (
	"context"

	"golang.org/x/sync/semaphore"
)

const (
	// maxUnitsWaiting and handoverBytes bound what waits for the committer: many small
	// units, or two big ones.
	maxUnitsWaiting = 64
	handoverBytes   = 2 * maxBatchBytes
	// leastWeight is what a small message weighs, in bytes: what is kept of it is more
	// than its text.
	leastWeight = maxBatchBytes / maxBatchMessages
)

// handover takes units from the worker to the committer in their order. A full one blocks
// the worker: the store is what is slow then, and reading waits for it. The more small
// units wait, the more of them the committer puts into one transaction, so that a slow
// disk makes larger commits and not a longer queue.
type handover struct {
	ch   chan *unit
	room *semaphore.Weighted
}

func newHandover() *handover {
	return &handover{ch: make(chan *unit, maxUnitsWaiting), room: semaphore.NewWeighted(handoverBytes)}
}

// put hands a unit over. After the end of ctx it does so only if there is room: after a
// stop the committer still takes what is there.
func (h *handover) put(ctx context.Context, u *unit) error {
	u.weight = u.weigh()
	if !h.room.TryAcquire(u.weight) {
		if err := h.room.Acquire(ctx, u.weight); err != nil {
			return err
		}
	}
	select {
	case h.ch <- u:
		return nil
	default:
	}
	select {
	case h.ch <- u:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// took says that u has left the channel.
func (h *handover) took(u *unit) { h.room.Release(u.weight) }

// weigh returns how much of a handover's room the unit takes.
func (u *unit) weigh() int64 {
	var messages, rows int64
	for i := range u.done {
		messages += max(u.done[i].msg.size(), leastWeight)
	}
	for i := range u.commit.Rows {
		rows += int64(len(u.commit.Rows[i].Data))
	}
	return min(max(messages, rows), handoverBytes)
}
