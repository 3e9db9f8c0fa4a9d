package store

import (
	"context"
	"slices"

	"github.com/skaldbus/skald/bus"
)

const (
	// denseAhead is how many numbers are looked at for each row of the page, and
	// denseSessions how many sessions, for each row, make that worth a try. Looking at a
	// number costs half of what looking into a session does: a try that fails costs at
	// most as much again as what it was to save.
	denseAhead    = 8
	denseSessions = 4
)

// readDense fills a page of a workspace from the next numbers of the whole table. A
// workspace of many sessions that has many of the rows is in nearly every stretch of
// them, and its page does not need a look into each session. ok is false if the
// workspace has few sessions or the stretch does not fill the page. args are those of
// the page's text.
func readDense(ctx context.Context, t *tx, q *PageQuery, args []any) (events []bus.Event, ok bool, err error) {
	few := denseSessions * q.Limit
	var sessions int
	if err := t.row(ctx, sqlActiveOfWorkspace, with(args, few)...).Scan(&sessions); err != nil || sessions < few {
		return nil, false, err
	}
	return readEvents(ctx, t, q, sqlDenseOfWorkspace, with(args, denseAhead*q.Limit))
}

// with returns the parameters of a page with another number of rows to look at.
func with(args []any, examine int) []any {
	out := slices.Clone(args)
	out[1] = examine
	return out
}
