package gateway

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"time"

	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/live"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// commentEvery is how often a stream sends a comment, so that proxies do not take
	// it for dead: they mostly wait for 60 s, some for 30.
	commentEvery = 15 * time.Second
	// maxStreams is how many streams may be open.
	maxStreams = 10_000
	// A client that lost its stream comes back after retryMin to retryMax: not all of
	// them at once.
	retryMin = time.Second
	retryMax = 3 * time.Second
	// errorEvent is the name of the event that says why a stream ends.
	errorEvent = "stream_error"
)

var (
	errStopping = errors.New("the gateway stops")
	errCrowded  = &api.Failure{
		Status: http.StatusServiceUnavailable, Code: api.CodeUnavailable, RetryAfter: time.Second,
		Message: "too many live streams are open",
	}
)

// stream serves the facts that pass the query's filters as server-sent events, until
// the client leaves.
//
// To an EventSource any status but 200 is final: it gives up. So what will not get
// better (a bad cursor, no token) has its status, and what passes (the store is behind,
// or does not answer) ends a stream that has begun, so that the client comes back.
func (g *Gateway) stream(w http.ResponseWriter, r *http.Request, grant *access.Grant) {
	a := g.o.API.Within(grant.Workspaces)
	p, err := api.ParseQuery(r.URL.RawQuery)
	var q store.PageQuery
	var head store.Head
	if err == nil {
		q, head, err = a.Stream(r.Context(), p, r.Header.Values(api.HeaderLastEventID))
	}
	if g.streams.Add(1) > g.o.maxStreams && err == nil {
		err = errCrowded
	}
	defer g.streams.Add(-1)
	if err != nil && api.FailureOf(err).RetryAfter == 0 {
		g.fail(w, r, err)
		return
	}
	h := w.Header()
	h.Set("Content-Type", "text/event-stream")
	h.Set("Cache-Control", "no-store, no-transform")
	h.Set("X-Accel-Buffering", "no")
	if head.Epoch != "" {
		h.Set("Skald-Epoch", head.Epoch)
	}
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return
	}

	ctx, cancel := context.WithCancelCause(r.Context())
	defer cancel(nil)
	out := newStreamWriter(w, g.o.frameTimeout)
	defer out.close()
	defer context.AfterFunc(ctx, out.end)()
	ended := make(chan struct{}) // closed when the watcher below has ended
	go func() {
		defer close(ended)
		select {
		case <-g.stopping:
			cancel(errStopping)
		case <-grant.Revoked():
			cancel(errRevoked)
		case <-ctx.Done():
		}
	}()
	defer func() { cancel(nil); <-ended }()

	retry := retryMin + rand.N(retryMax-retryMin)
	if out.send(fmt.Appendf(nil, "retry: %d\n: connected\n\n", retry.Milliseconds())) != nil {
		return
	}
	if err == nil {
		err = g.follow(ctx, out, q, head)
	}
	g.endStream(ctx, r, out, err)
}

// follow sends what comes until it can not go on. The error is nil if nobody is there
// to be told of it.
func (g *Gateway) follow(ctx context.Context, out *streamWriter, q store.PageQuery, head store.Head) error {
	stream := g.o.Live.Follow(q, head)
	defer stream.Close()
	tick := time.NewTicker(g.o.commentEvery)
	defer tick.Stop()
	var frames [][]byte
	for {
		events, err := stream.Next(ctx, tick.C)
		if err != nil {
			return err
		}
		frames = frames[:0]
		for _, e := range events {
			frames = append(frames, e.Frame)
		}
		if len(events) == 0 {
			frames = append(frames, []byte(": \n\n"))
		}
		if err := out.send(frames...); err != nil {
			// A stream that we end has a last moment, after which nobody is to blame. A
			// failed write ends the request's context, too.
			why := context.Cause(ctx)
			if errors.Is(err, os.ErrDeadlineExceeded) && why != errStopping && why != errRevoked {
				g.cutOff.Add(1)
			}
			return nil
		}
	}
}

// endStream says why a stream ends, unless nothing is wrong: the client or the gateway
// leaves, and the client resumes by itself.
func (g *Gateway) endStream(ctx context.Context, r *http.Request, out *streamWriter, err error) {
	var f *api.Failure
	switch {
	case err == nil, errors.Is(err, errStopping), errors.Is(err, live.ErrStopped), r.Context().Err() != nil:
		return
	case errors.Is(err, errRevoked):
		f = errToken
	default:
		// The hub has logged it, once for all streams.
		if f = api.FailureOf(err); f.Code == api.CodeInternal {
			g.o.Logger.DebugContext(ctx, "stream ends", "err", err)
		}
	}
	_ = out.send(live.AppendNote(nil, errorEvent, f.AppendJSON(nil))) // it ends either way
}
