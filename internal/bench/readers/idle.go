package readers

import (
	"context"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// IdleResult is what was counted.
type IdleResult struct {
	OnHub   int   // readers that were fed from one place
	Commits int64 // of the facts, none of which was theirs
	Reads   int64 // of the table, for all readers together
	Pages   int64 // of the table, for one reader each
}

// Idle has so many readers follow a workspace in which nothing happens while facts of
// others are published at a pace.
func Idle(ctx context.Context, count, facts, perSecond int) (r IdleResult, err error) {
	w, err := start(ctx)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, w.stop()) }()
	for range count {
		one, err := follow(ctx, w.gateway.Addr(), "idle", 0)
		if err != nil {
			return r, err
		}
		defer one.conn.Close()
	}
	for w.hub.Stats().Readers < count { // the head of an answer comes before that
		if err := until(ctx, soon()); err != nil {
			return r, fmt.Errorf("wait for readers: %w", err)
		}
	}
	before := w.hub.Stats()
	if _, err := w.publish(ctx, facts, perSecond, func(int) bus.Key { return bus.Key{Workspace: "busy", Session: "s"} }); err != nil {
		return r, err
	}
	if err := w.settle(ctx, uint64(facts)); err != nil {
		return r, err
	}
	after := w.hub.Stats()
	return IdleResult{OnHub: after.Readers, Commits: w.commits(), Reads: after.Reads - before.Reads, Pages: after.Pages - before.Pages}, nil
}
