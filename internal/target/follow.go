package target

import (
	"context"
	"errors"
	"maps"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

const (
	// fileEvery is how often the file is looked at while nothing comes: a page at its
	// end takes less than 100 µs. urlEvery is how often a gateway is asked.
	fileEvery = 100 * time.Millisecond
	urlEvery  = 200 * time.Millisecond
	// troubleMax is the longest pause before a place that does not answer is tried
	// again.
	troubleMax = 2 * time.Second
)

// Poll reads pages behind the query's cursor until ctx ends, each returns an error, or
// the place refuses; at their end it returns if once, else it asks again. each is called with an event's
// bytes as they came, in the order of numbers, and with the cursor behind it. A
// place that has answered once and does not answer for a while is asked again;
// trouble is told of that once, and with nil when it is over.
//
// It returns the cursor from which to go on, which is empty if nothing has answered.
func Poll(ctx context.Context, t Target, p api.Params, once bool, each func(raw []byte, at bus.Cursor) error, trouble func(error)) (bus.Cursor, error) {
	p = maps.Clone(p)
	every := urlEvery
	if _, ok := t.(*file); ok {
		every = fileEvery
	}
	var at bus.Cursor
	wait := time.Duration(0) // while there is trouble
	for {
		page, err := askPage(ctx, t, p)
		switch {
		case ctx.Err() != nil:
			return at, nil
		case err != nil && (at.Epoch == "" && !errors.Is(err, bus.ErrBehind) || !passing(err)):
			return at, err
		case err != nil:
			if wait == 0 {
				trouble(err)
			}
			wait = min(max(2*wait, every), troubleMax)
			if !sleep(ctx, wait) {
				return at, nil
			}
			continue
		case wait > 0:
			trouble(nil)
			wait = 0
		}
		for _, raw := range page.Events {
			ev, err := bus.ParseEvent(raw)
			if err != nil {
				return at, err
			}
			next := bus.Cursor{Epoch: page.Epoch, Seq: ev.Seq}
			if err := each(raw, next); err != nil {
				return at, err
			}
			if at = next; ctx.Err() != nil {
				return at, nil
			}
		}
		at = bus.Cursor{Epoch: page.Epoch, Seq: page.NextAfter}
		p[api.ParamAfterSeq] = []string{at.String()}
		if page.NextAfter >= page.Latest && (once || !sleep(ctx, every)) {
			return at, nil
		}
	}
}

// passing reports whether an error may be over when the place is asked again.
func passing(err error) bool {
	code := api.FailureOf(err).Code
	return code == api.CodeUnavailable || code == api.CodeBehind
}

func askPage(ctx context.Context, t Target, p api.Params) (Page, error) {
	body, err := t.Events(ctx, p)
	if err != nil {
		return Page{}, err
	}
	return ParsePage(body)
}

// sleep waits for d and reports whether ctx has not ended.
func sleep(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// Since returns the cursor behind the last event that was stored before the moment,
// by INGEST's clock, among those of the query's workspace and session. It asks for a
// few pages of one event: about 25 in a table of ten million.
func Since(ctx context.Context, t Target, p api.Params, moment time.Time) (bus.Cursor, error) {
	q := api.Params{}
	for _, name := range []string{api.ParamWorkspace, api.ParamSession} {
		if v, ok := p[name]; ok {
			q[name] = v
		}
	}
	head, err := askPage(ctx, t, q)
	if err != nil {
		return bus.Cursor{}, err
	}
	// All up to low is older than the moment, nothing behind high is.
	low, high := max(head.Oldest, 1)-1, head.Latest
	q[api.ParamLimit] = []string{"1"}
	for low < high {
		mid := low + (high-low)/2
		ev, ok, err := firstBehind(ctx, t, q, bus.Cursor{Epoch: head.Epoch, Seq: mid})
		switch {
		case err != nil:
			return bus.Cursor{}, err
		case !ok || ev.StoredAt >= moment.UnixMilli():
			high = mid
		default:
			low = min(ev.Seq, high)
		}
	}
	return bus.Cursor{Epoch: head.Epoch, Seq: low}, nil
}

// firstBehind returns the first event behind the cursor; ok is false if there is none.
func firstBehind(ctx context.Context, t Target, q api.Params, at bus.Cursor) (ev bus.Event, ok bool, err error) {
	for {
		q[api.ParamAfterSeq] = []string{at.String()}
		page, err := askPage(ctx, t, q)
		if err != nil {
			return ev, false, err
		}
		if len(page.Events) > 0 {
			ev, err = bus.ParseEvent(page.Events[0])
			return ev, err == nil, err
		}
		if at.Seq = page.NextAfter; at.Seq >= page.Latest {
			return ev, false, nil
		}
	}
}
