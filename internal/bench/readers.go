package bench

import (
	"context"
	"errors"

	"github.com/skaldbus/skald/materializer/store"
)

// readerSpaces are a session with a twentieth of the rows, a rare workspace of 10
// sessions, a busy one of 1,000, and one of 20,000.
func readerSpaces() []space {
	return []space{
		{id: "busy", sessions: 1, share: 50}, {id: "rare", sessions: 10, share: 20},
		{id: "busy", sessions: 999, share: 680}, {id: "large", sessions: 20_000, share: 250},
	}
}

// readersFigure measures pages of a very large table.
func readersFigure(ctx context.Context, b *Bench) (_ []Result, err error) {
	t, err := b.makeTables(ctx, b.Sizes.ManyRows, readerSpaces())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.remove()) }()
	out, err := b.comparePages(ctx, "large-pages", &t, b.Sizes.ManyRows, []kindOfPage{
		{"by session", store.PageQuery{Workspace: "busy", Session: "session-1"}, 2, false},
		{"by rare workspace", store.PageQuery{Workspace: "rare"}, 4, true},
		{"by busy workspace", store.PageQuery{Workspace: "busy"}, 4, true},
	})
	if err != nil {
		return nil, err
	}
	large := store.PageQuery{Workspace: "large"}
	behind := &pageOf{name: "far behind", query: large, want: pageLimit, after: func(int) uint64 { return 0 }, reader: t.large}
	upToDate := &pageOf{name: "caught up", query: large, after: func(int) uint64 { return uint64(b.Sizes.ManyRows - 1) }, reader: t.large}
	if err := measure(ctx, []*pageOf{behind, upToDate}); err != nil {
		return nil, err
	}
	return append(out,
		Result{Figure: "large-pages", Case: "workspace of 20,000 sessions, far behind", Measured: behind.median(), Unit: "ms", Bar: Bar{Op: AtMost, Value: 100}},
		Result{Figure: "large-pages", Case: "workspace of 20,000 sessions, caught up", Measured: upToDate.median(), Unit: "ms", Bar: Bar{Op: Below, Value: 1}},
	), nil
}
