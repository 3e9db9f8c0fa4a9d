package api

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// behindWait is how long a cursor that this store has not reached is waited for.
	behindWait = 2 * time.Second
	// The store's position is looked at again after behindPollMin, and ever more
	// seldom up to behindPollMax: most who wait do so for one commit.
	behindPollMin = 2 * time.Millisecond
	behindPollMax = 20 * time.Millisecond
)

// Events answers a page of events. maxBytes bounds the answer's rows, 0 being the
// store's own bound of 4 MiB; one row is always given. It waits up to two
// seconds for a cursor that the store has not reached yet.
func (a *API) Events(ctx context.Context, p Params, maxBytes int) ([]byte, error) {
	q, err := parseEvents(p)
	if err != nil {
		return nil, err
	}
	q.MaxBytes, q.Within = maxBytes, a.within
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	return reached(ctx, a, q.After, func() ([]byte, error) { return a.page(ctx, q) })
}

// reached returns what read does. If that finds the cursor beyond the store's end, it
// reads again when the store has got there, or says that nobody was given the cursor.
func reached[T any](ctx context.Context, a *API, after *bus.Cursor, read func() (T, error)) (T, error) {
	v, err := read()
	var beyond *store.CursorError
	if !errors.Is(err, store.ErrBeyond) || !errors.As(err, &beyond) {
		return v, err
	}
	if a.ends != nil {
		// The server is asked after the store: what it knows of is then at least
		// as new as what the store lacked.
		ends, err := a.askEnds(ctx)
		if err != nil {
			return v, err
		}
		if after.Seq <= ends.EventsLast {
			if err := a.await(ctx, after.Seq); err != nil {
				return v, err
			}
			return read()
		}
	}
	ahead := *beyond
	ahead.Err = bus.ErrCursorAhead
	return v, &ahead
}

func parseEvents(p Params) (q store.PageQuery, err error) {
	if err = p.only(ParamAfterSeq, ParamLimit, ParamSession, ParamWorkspace, ParamType); err != nil {
		return q, err
	}
	if q.Limit, err = p.limit(); err != nil {
		return q, err
	}
	return q, p.events(&q)
}

// events reads the parameters that pages and streams of events have in common.
func (p Params) events(q *store.PageQuery) (err error) {
	if q.After, err = p.cursor(ParamAfterSeq); err != nil {
		return err
	}
	if q.Session, err = p.id(ParamSession); err != nil {
		return err
	}
	if q.Workspace, err = p.id(ParamWorkspace); err != nil {
		return err
	}
	q.Type, err = p.eventType()
	return err
}

// page reads and renders one page when it is its turn.
func (a *API) page(ctx context.Context, q store.PageQuery) ([]byte, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	select {
	case a.pages <- struct{}{}:
		defer func() { <-a.pages }()
	case <-ctx.Done():
		return nil, fmt.Errorf("wait for other pages: %w", context.Cause(ctx))
	}
	page, err := a.reader.Page(ctx, q)
	if err != nil {
		return nil, err
	}
	return page.AppendJSON(nil), nil
}

// await waits until the store has reached seq, at most behindWait.
func (a *API) await(ctx context.Context, seq uint64) error {
	deadline := time.NewTimer(behindWait)
	defer deadline.Stop()
	for pause := behindPollMin; ; pause = min(2*pause, behindPollMax) {
		pos, err := a.reader.Position(ctx)
		if err != nil {
			return err
		}
		if pos.EventsSeq >= seq {
			return nil
		}
		again := time.NewTimer(pause)
		select {
		case <-again.C:
		case <-deadline.C:
			again.Stop()
			return fmt.Errorf("%w: it is at %d, the cursor at %d", bus.ErrBehind, pos.EventsSeq, seq)
		case <-ctx.Done():
			again.Stop()
			return fmt.Errorf("wait for event %d: %w", seq, context.Cause(ctx))
		}
	}
}
