package target

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"mime"
	"net/http"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/sse"
)

const (
	// beginsWithin is how long a stream's first byte may take: a gateway sends it at once,
	// or when its store has come up to the cursor.
	beginsWithin = 15 * time.Second
	// silentFor is how long nothing may come after that: three of a gateway's comments.
	silentFor = 45 * time.Second
)

// Errors of a stream, after each of which it is opened again.
var (
	errLost   = errors.New("the stream has ended")
	errSilent = errors.New("nothing comes over the stream")
)

// Follow is [Poll] without an end. Of a gateway it takes the stream of server-sent
// events: what is lost or ends is opened again behind the last event. Where a stream is
// silent, since something in between holds it back, it reads pages up to the newest
// event before it tries a stream again.
func Follow(ctx context.Context, t Target, p api.Params, each func(raw []byte, at bus.Cursor) error, trouble func(error)) (bus.Cursor, error) {
	g, ok := t.(*gateway)
	if !ok {
		return Poll(ctx, t, p, false, each, trouble)
	}
	s := newStream(g, p, each, trouble)
	err := s.run(ctx)
	return s.at, err
}

// stream is one reader's place at a gateway.
type stream struct {
	g       *gateway
	p       api.Params // the cursor in it counts until there is another
	each    func(raw []byte, at bus.Cursor) error
	trouble func(error)

	begins time.Duration // beginsWithin, unless a test lowers it

	at      bus.Cursor    // behind the last event
	pause   time.Duration // before a lost stream is opened again, as the gateway asks
	wait    time.Duration // before the next attempt; 0 if there is no trouble
	refused error         // what each has returned
}

func newStream(g *gateway, p api.Params, each func(raw []byte, at bus.Cursor) error, trouble func(error)) *stream {
	return &stream{g: g, p: maps.Clone(p), each: each, trouble: trouble, begins: beginsWithin, pause: urlEvery}
}

func (s *stream) run(ctx context.Context) error {
	for {
		err := s.read(ctx)
		if errors.Is(err, errSilent) && ctx.Err() == nil {
			err = s.pages(ctx)
		}
		wait := s.pause
		switch {
		case s.refused != nil:
			return s.refused
		case ctx.Err() != nil:
			return nil
		case err == nil, errors.Is(err, errLost):
		case s.at.Epoch == "" && !errors.Is(err, bus.ErrBehind) || !passing(err):
			return err
		default:
			if s.wait == 0 {
				s.trouble(err)
			}
			s.wait = min(max(2*s.wait, urlEvery), troubleMax)
			wait = s.wait
		}
		if !sleep(ctx, wait) {
			return nil
		}
	}
}

// pages reads up to the newest event.
func (s *stream) pages(ctx context.Context) error {
	at, err := Poll(ctx, s.g, s.query(), true, s.take, s.trouble)
	if at.Epoch != "" {
		s.at = at
	}
	return err
}

// take hands an event on.
func (s *stream) take(raw []byte, at bus.Cursor) error {
	if s.refused = s.each(raw, at); s.refused == nil {
		s.at = at
	}
	return s.refused
}

// query is the one for what comes next.
func (s *stream) query() api.Params {
	if s.at.Epoch == "" {
		return s.p
	}
	q := maps.Clone(s.p)
	q[api.ParamAfterSeq] = []string{s.at.String()}
	return q
}

// read opens the stream behind the last event and reads it to its end.
func (s *stream) read(ctx context.Context) error {
	if v := s.p[api.ParamAfterSeq]; s.at.Epoch == "" && (len(v) == 0 || v[0] == "") {
		// It begins at the newest event, of which a stream does not tell the number before
		// another comes: one that is lost until then could not be resumed.
		page, err := askPage(ctx, s.g, s.p)
		if err != nil {
			return err
		}
		s.at = bus.Cursor{Epoch: page.Epoch, Seq: page.NextAfter}
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	watch := time.AfterFunc(s.begins, func() { cancel(errSilent) })
	defer watch.Stop()
	resp, err := s.open(ctx)
	if err == nil {
		defer resp.Body.Close()
		err = s.events(ctx, sse.NewDecoder(&watched{resp.Body, watch}))
	}
	if cause := context.Cause(ctx); errors.Is(cause, errSilent) {
		return errSilent
	}
	return err
}

// open asks for the stream.
func (s *stream) open(ctx context.Context) (*http.Response, error) {
	q := maps.Clone(s.p)
	header := http.Header{"Accept": {"text/event-stream"}}
	if s.at.Epoch != "" {
		delete(q, api.ParamAfterSeq)
		header.Set(api.HeaderLastEventID, s.at.String())
	}
	endless := &http.Client{Transport: s.g.client.Transport}
	resp, err := s.g.ask(ctx, endless, eventsPath, q, header)
	if err != nil {
		return nil, err
	}
	if kind, _, _ := mime.ParseMediaType(resp.Header.Get("Content-Type")); kind != header.Get("Accept") {
		resp.Body.Close()
		return nil, fmt.Errorf("ask %s: %w: it is no stream of events", s.g, errAnswer)
	}
	if epoch := resp.Header.Get("Skald-Epoch"); epoch != "" {
		if s.at.Epoch == "" {
			// The gateway has taken it, so it is one.
			from, err := bus.ParseCursor(api.ParamAfterSeq, s.p[api.ParamAfterSeq][0])
			if err != nil {
				resp.Body.Close()
				return nil, err
			}
			s.at = bus.Cursor{Epoch: epoch, Seq: from.Seq}
		}
		if s.wait > 0 {
			s.trouble(nil)
			s.wait = 0
		}
	}
	return resp, nil
}

// events reads until the stream ends.
func (s *stream) events(ctx context.Context, d *sse.Decoder) error {
	for {
		e, err := d.Next()
		if after := d.Retry(); after > 0 {
			s.pause = after
		}
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil:
			return fmt.Errorf("%w: %w", errLost, err)
		case e.Name == "stream_error":
			// It has the status that the request would have had.
			if f, ok := api.ParseFailure(0, e.Data); ok {
				return f
			}
			return fmt.Errorf("%w: %s ends the stream with %.100q", errAnswer, s.g, e.Data)
		}
		ev, err := bus.ParseEvent(e.Data)
		if err != nil {
			return err
		}
		if ev.Seq <= s.at.Seq || s.at.Epoch == "" {
			return fmt.Errorf("%w: %s sends event %d behind %s", errAnswer, s.g, ev.Seq, s.at)
		}
		if err := s.take(e.Data, bus.Cursor{Epoch: s.at.Epoch, Seq: ev.Seq}); err != nil {
			return err
		}
	}
}

// watched tells a timer of what comes.
type watched struct {
	r     io.Reader
	timer *time.Timer
}

func (w *watched) Read(p []byte) (int, error) {
	n, err := w.r.Read(p)
	if n > 0 {
		w.timer.Reset(silentFor)
	}
	return n, err
}
