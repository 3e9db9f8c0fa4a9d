package api

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// queryTimeout bounds one query, so that a store that does not answer is said
	// to be unavailable before the caller's own patience ends.
	queryTimeout = 10 * time.Second
	// endsTimeout bounds asking the server where the streams end. One that is
	// there answers in milliseconds.
	endsTimeout = 2 * time.Second
	// maxPages is how many pages are read and rendered at a time. A page holds up
	// to 4 MiB twice, as rows and as text; more callers wait for their turn.
	maxPages = 8
)

// errSlow is the cause when a query has taken too long.
var errSlow = fmt.Errorf("%w: no answer in time", bus.ErrUnavailable)

// Ends are the last sequences of the two streams, as the server says, and what else only
// it can tell.
type Ends struct {
	IngestLast   uint64
	EventsLast   uint64
	SilentStores int // other stores of the bus that were not heard of
}

// Options are what answers are made from.
type Options struct {
	// Ends asks the server where the streams end. Nil if there is no server to
	// ask, as with a store file: then a cursor beyond the store's end is ahead,
	// and the status's lags are null.
	Ends func(context.Context) (Ends, error)
	// Horizon is how long bare event ids are known, in INGEST's time. Only
	// outcomes need it. Defaults to bus.DefaultIDHorizon.
	Horizon time.Duration
	// Logger takes the errors of which callers are told nothing. Nil discards.
	Logger *slog.Logger
	// Ready returns why the store must not be read now, nil if it may. Nil is always.
	// The status is answered in any case.
	Ready func() error
	// Reader is the store. Required.
	Reader *store.Reader
}

// API answers queries. It is safe for concurrent use. Its methods return a
// complete JSON text, or an error that [API.Fail] turns into what the caller is
// told.
type API struct {
	ends    func(context.Context) (Ends, error)
	ready   func() error
	horizon time.Duration
	log     *slog.Logger
	reader  *store.Reader
	within  []string      // the workspaces that are answered about, nil for all
	pages   chan struct{} // a token for each page being read
}

// New returns an API. It panics if the reader is missing.
func New(o Options) *API {
	if o.Reader == nil {
		panic("api.New: Options.Reader is missing")
	}
	if o.Horizon == 0 {
		o.Horizon = bus.DefaultIDHorizon
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Ready == nil {
		o.Ready = func() error { return nil }
	}
	return &API{
		ends: o.Ends, ready: o.Ready, horizon: o.Horizon, log: o.Logger, reader: o.Reader,
		pages: make(chan struct{}, maxPages),
	}
}

// Within returns an API that answers about these workspaces only, none of them named
// twice: what lies elsewhere is as if it were not known. Nil is all of them. Numbers
// are the bus's, so cursors move over what is not shown. Status, positions and
// outcomes are not bounded.
func (a *API) Within(workspaces []string) *API {
	b := *a
	b.within = workspaces
	return &b
}

// Fail returns what a caller is told about err, and logs what it is not told.
func (a *API) Fail(ctx context.Context, query string, err error) *Failure {
	f := FailureOf(err)
	switch f.Code {
	case CodeInternal:
		a.log.ErrorContext(ctx, "query failed", slog.String("query", query), slog.Any("err", err))
	case CodeUnavailable:
		if !errors.Is(err, context.Canceled) { // a caller that left is no event
			a.log.WarnContext(ctx, "query could not be answered", slog.String("query", query), slog.Any("err", err))
		}
	}
	return f
}

// Latest returns the last number that the store has passed.
func (a *API) Latest(ctx context.Context) (uint64, error) {
	pos, err := a.reader.Position(ctx)
	return pos.EventsSeq, err
}

// askEnds asks the server; an error of any kind is bus.ErrUnavailable.
func (a *API) askEnds(ctx context.Context) (Ends, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, endsTimeout, errSlow)
	defer cancel()
	e, err := a.ends(ctx)
	if err != nil {
		return Ends{}, fmt.Errorf("%w: ask the server where the streams end: %w", bus.ErrUnavailable, err)
	}
	return e, nil
}
