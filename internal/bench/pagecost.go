package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/skaldbus/skald/materializer/store"
)

// pageSpaces are 1,000 sessions in 10 workspaces, of which one session has a
// twentieth of the rows, so that it fills a page in a small table, too.
func pageSpaces() []space {
	spaces := []space{{id: "w0", sessions: 1, share: 50}, {id: "w0", sessions: 99, share: 50}}
	for i := range 9 {
		spaces = append(spaces, space{id: fmt.Sprint("w", i+1), sessions: 100, share: 100})
	}
	return spaces
}

var (
	bySession   = store.PageQuery{Workspace: "w0", Session: "session-1"}
	byWorkspace = store.PageQuery{Workspace: "w5"}
)

// tables are two stores of the same kind, a small one and a large one.
type tables struct {
	small, large         *store.Reader
	smallPath, largePath string
}

func (b *Bench) makeTables(ctx context.Context, rows int, spaces []space) (t tables, err error) {
	b.note("tables of %d and %d rows are made", b.Sizes.FewRows, rows)
	if t.small, t.smallPath, err = makeStore(ctx, b.Dir, b.Sizes.FewRows, spaces); err == nil {
		t.large, t.largePath, err = makeStore(ctx, b.Dir, rows, spaces)
	}
	if err != nil {
		return t, errors.Join(err, t.remove())
	}
	return t, nil
}

func (t *tables) remove() error {
	var errs []error
	for _, s := range []struct {
		r    *store.Reader
		path string
	}{{t.small, t.smallPath}, {t.large, t.largePath}} {
		if s.path != "" {
			errs = append(errs, removeStore(s.r, s.path))
		}
	}
	return errors.Join(errs...)
}

func pageCostFigure(ctx context.Context, b *Bench) (_ []Result, err error) {
	t, err := b.makeTables(ctx, b.Sizes.Rows, pageSpaces())
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, t.remove()) }()
	return b.comparePages(ctx, "page-cost", &t, b.Sizes.Rows, []kindOfPage{
		{"by session", bySession, 2, false}, {"by workspace", byWorkspace, 4, true},
	})
}

// kindOfPage is a page that is read of both tables, and its bars.
type kindOfPage struct {
	name  string
	query store.PageQuery
	most  float64 // times the small table's time
	bound bool    // it is to take less than 5 ms, too
}

// comparePages measures each kind of page in both tables, in turn.
func (b *Bench) comparePages(ctx context.Context, figure string, t *tables, rows int, kinds []kindOfPage) ([]Result, error) {
	var all []*pageOf
	for _, k := range kinds {
		all = append(all,
			&pageOf{name: "small " + k.name, query: k.query, want: pageLimit, after: spread(b.Sizes.FewRows), reader: t.small},
			&pageOf{name: "large " + k.name, query: k.query, want: pageLimit, after: spread(rows), reader: t.large})
	}
	if err := measure(ctx, all); err != nil {
		return nil, err
	}
	var out []Result
	for i, k := range kinds {
		small, large := all[2*i].median(), all[2*i+1].median()
		out = append(out, Result{
			Figure: figure, Case: k.name, Measured: large, Baseline: small, Unit: "ms", BaselineOf: fmt.Sprintf("of %d rows", b.Sizes.FewRows),
			Bar: Bar{Op: AtMost, Value: k.most, OfBaseline: true},
		})
		if k.bound {
			out = append(out, Result{Figure: figure, Case: k.name + ", as it is", Measured: large, Unit: "ms", Bar: Bar{Op: Below, Value: 5}})
		}
	}
	return out, nil
}
