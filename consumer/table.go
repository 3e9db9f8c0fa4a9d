package consumer

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/skaldbus/skald/bus"
)

const (
	// pageLimit is how many events a page may bring: the most that the service gives.
	pageLimit = 1000
	// pageTimeout bounds the asking for one page. The service waits 2 s for a cursor
	// that it has not reached; a page itself takes milliseconds.
	pageTimeout = 5 * time.Second
	// farBehind is how many numbers, or messages of its filter, a reader is behind
	// when it reads from the table instead of EVENTS; nearEnough is when it goes back.
	farBehind  = 20_000
	nearEnough = 1_000
	// tableRest is how long a table that did not answer is not asked, if EVENTS
	// holds what it was to be asked for.
	tableRest = 5 * time.Second
)

// table is the service that pages what the materializers' stores hold.
type table struct {
	c       *Consumer
	subject string
	filter  map[string]string // the members of a request that do not change
	types   []string          // those to pick from a page by hand; nil if the service picks
	far     uint64
	near    uint64
	rest    time.Time // until then it is not asked without need
}

// newTable returns the table of the consumer's events. Within one workspace it is
// asked under that workspace's subject, where permissions can see it.
func newTable(c *Consumer) *table {
	t := &table{c: c, far: farBehind, near: nearEnough, filter: map[string]string{"limit": strconv.Itoa(pageLimit)}}
	t.subject = c.o.Subjects.Prefix() + ".op.events"
	if c.o.Workspace != "" {
		t.subject = c.o.Subjects.Prefix() + ".api." + bus.Escape(c.o.Workspace) + ".events"
	}
	if c.o.Session != "" {
		t.filter["session_id"] = c.o.Session
	}
	switch len(c.o.Types) {
	case 0:
	case 1:
		t.filter["type"] = c.o.Types[0]
	default:
		t.types = c.o.Types // a request names one type
	}
	return t
}

// pays reports whether the table is the shorter way for one who is n behind.
func (t *table) pays(n uint64) bool { return n > t.far && time.Now().After(t.rest) }

// wants reports whether an event is one to read.
func (t *table) wants(ev bus.Event) bool { return t.types == nil || slices.Contains(t.types, ev.Type) }

// tablePage is one answer of the service.
type tablePage struct {
	Events    []json.RawMessage `json:"events"`
	NextAfter uint64            `json:"next_after_seq"`
	Latest    uint64            `json:"latest_seq"`
}

// ask returns the page behind at. An error that another try may heal wraps
// errNoTable; of them bus.ErrBehind says that the store asked has not come as far.
// A *CursorError says that there is no page, and is final but for a cursor that is
// ahead, which is for the caller to judge.
func (t *table) ask(ctx context.Context, at bus.Cursor) (p tablePage, err error) {
	t.filter["after_seq"] = at.String()
	request, err := json.Marshal(t.filter)
	if err != nil {
		return p, final{fmt.Errorf("write request for a page: %w", err)}
	}
	m, err := t.request(ctx, request)
	if err != nil {
		return p, fmt.Errorf("%w: ask for the page behind %d on %s: %w", errNoTable, at.Seq, t.subject, err)
	}
	if code := m.Header.Get(micro.ErrorCodeHeader); code != "" {
		return p, refused(at, code, m.Data)
	}
	if err := json.Unmarshal(m.Data, &p); err != nil {
		return p, fmt.Errorf("%w: read page behind %d: %w", errNoTable, at.Seq, err)
	}
	if p.NextAfter < at.Seq || p.Latest < p.NextAfter {
		return p, fmt.Errorf("%w: page behind %d goes to %d of %d", errNoTable, at.Seq, p.NextAfter, p.Latest)
	}
	return p, nil
}

// request sends one request. It does not wait for an answer that went down with
// the connection.
func (t *table) request(ctx context.Context, body []byte) (*nats.Msg, error) {
	nc := t.c.js.Conn()
	if err := t.c.closed(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, pageTimeout, bus.ErrUnavailable)
	defer cancel()
	lost := nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	watched := make(chan struct{})
	go func() {
		defer close(watched)
		select {
		case <-lost:
			cancel()
		case <-ctx.Done():
		}
	}()
	m, err := nc.RequestMsgWithContext(ctx, &nats.Msg{Subject: t.subject, Data: body})
	cancel()
	<-watched
	nc.RemoveStatusListener(lost)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", bus.ErrUnavailable, err)
	}
	return m, nil
}

// refused turns the service's refusal into an error of this package.
func refused(at bus.Cursor, status string, body []byte) error {
	var f struct {
		Error  string `json:"error"`
		Code   string `json:"code"`
		Latest uint64 `json:"latest_seq"`
		Oldest uint64 `json:"oldest_seq"`
		Epoch  string `json:"epoch"`
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return fmt.Errorf("%w: page behind %d: error %s", errNoTable, at.Seq, status)
	}
	misplaced := func(err error) error {
		return &CursorError{Err: err, Cursor: at, Epoch: f.Epoch, First: f.Oldest, Last: f.Latest, Table: true}
	}
	switch f.Code {
	case "cursor_ahead":
		return misplaced(bus.ErrCursorAhead)
	case "cursor_gone":
		return final{misplaced(bus.ErrCursorGone)}
	case "other_epoch":
		return final{misplaced(bus.ErrOtherEpoch)}
	case "behind":
		return fmt.Errorf("%w: page behind %d: %w", errNoTable, at.Seq, bus.ErrBehind)
	}
	err := fmt.Errorf("page behind %d: %s: %s", at.Seq, f.Code, f.Error)
	if n, convErr := strconv.Atoi(status); convErr == nil && n < http.StatusInternalServerError {
		return final{err} // the same request will be refused again
	}
	return fmt.Errorf("%w: %w", errNoTable, err)
}

// page reads the table where that is the only or the shorter way on, until EVENTS
// can take over. It returns EVENTS' view and the cursor from where it does.
//
// Whoever begins at a cursor asks for one page in any case: the table alone knows
// that a cursor is older than what it keeps. Beside that it may fail to answer, as
// long as EVENTS holds what comes next.
func (f *reading) page(ctx context.Context, v view, at bus.Cursor) (view, bus.Cursor, error) {
	first := !f.begun && f.c.o.From != nil
	for first || f.gone(v) || at.Seq < v.last && f.table.pays(v.last-at.Seq) {
		before := at
		err := f.pages(ctx, &at)
		switch {
		case !errors.Is(err, errNoTable):
		case at.Seq > v.last:
			err = v.misplaced(bus.ErrCursorAhead, at)
		case !f.gone(v) && (f.begun || errors.Is(err, bus.ErrBehind)):
			f.table.rest = time.Now().Add(tableRest)
			return v, at, nil
		}
		if err != nil {
			return v, at, err
		}
		first = false
		if v, err = f.c.look(ctx); err != nil {
			return v, at, err
		}
		switch {
		case v.epoch != at.Epoch:
			return v, at, errOtherStream // a new session says which
		case at != before:
		case f.gone(v):
			// What has left EVENTS is not in this store yet: another may have it.
			return v, at, fmt.Errorf("%w: EVENTS begins at %d: %w", errNoTable, v.first, bus.ErrBehind)
		default:
			// The table ends here, however long EVENTS is.
			f.table.rest = time.Now().Add(tableRest)
		}
	}
	return v, at, nil
}

// pages reads the table from at until it is near the table's end.
func (f *reading) pages(ctx context.Context, at *bus.Cursor) error {
	for {
		p, err := f.table.ask(ctx, *at)
		if err != nil {
			return err
		}
		if !f.begun {
			f.c.begin(*at)
			f.begun = true
		}
		err = f.takePage(ctx, p)
		*at = f.c.Cursor()
		if err != nil || p.NextAfter+f.table.near >= p.Latest {
			return err
		}
	}
}

// takePage hands a page's events to the handler.
func (f *reading) takePage(ctx context.Context, p tablePage) error {
	f.c.count(func(s *Stats) { s.Pages++ })
	for _, raw := range p.Events {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ev, err := bus.ParseEvent(raw)
		if err != nil {
			return fmt.Errorf("%w: read page: %w", errNoTable, err)
		}
		at := f.c.Cursor().Seq
		if ev.Seq <= at || ev.Seq > p.NextAfter {
			return fmt.Errorf("%w: page behind %d has event %d and goes to %d", errNoTable, at, ev.Seq, p.NextAfter)
		}
		count := func(*Stats) {}
		if f.table.wants(ev) {
			if err := f.handle(ctx, ev); err != nil {
				return final{fmt.Errorf("handle event %d: %w", ev.Seq, err)}
			}
			count = handled
		}
		f.c.advance(ev.Seq, count)
		f.known = ev.Seq
	}
	if p.NextAfter > f.c.Cursor().Seq {
		f.c.advance(p.NextAfter, func(*Stats) {})
		f.known = p.NextAfter
	}
	return nil
}
