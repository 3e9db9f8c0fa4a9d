package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
	"github.com/skaldbus/skald/publisher"
)

type publishOptions struct {
	asJSON bool
	outbox string
	wait   string
}

// sender publishes messages and prints their acknowledgements.
type sender struct {
	publishOptions
	env  env
	conn *target.NATS
	pub  *publisher.Publisher

	done     chan error // of the publisher's Run
	sessions map[bus.Key]*publisher.Session
	notes    sync.Mutex // one line at a time on standard error
	rejected atomic.Int64
}

// newSender starts the publisher; give, one or run ends it.
func newSender(e env, conn *target.NATS, o publishOptions) (*sender, error) {
	s := &sender{publishOptions: o, env: e, conn: conn, done: make(chan error, 1), sessions: map[bus.Key]*publisher.Session{}}
	po := publisher.Options{Outbox: o.outbox, Prefix: conn.Subjects().Prefix(), Unplaced: true, Logger: slog.New(slog.DiscardHandler)}
	if o.outbox != "" {
		po.Logger = slog.New(slog.NewTextHandler(e.stderr, &slog.HandlerOptions{Level: slog.LevelWarn}))
		po.OnFailed = func(f publisher.Failure) {
			s.rejected.Add(1)
			s.say("skald: %s/%s: will not be materialized: %v", visible(f.Key.Workspace), visible(f.Key.Session), f.Err)
		}
	}
	var err error
	if s.pub, err = publisher.New(conn.Conn(), po); err != nil {
		return nil, err
	}
	go func() { s.done <- s.pub.Run(context.Background()) }()
	<-s.pub.Started() // so that what an earlier run has left is waited for
	return s, nil
}

func (s *sender) say(format string, args ...any) {
	s.notes.Lock()
	defer s.notes.Unlock()
	s.env.note(format, args...)
}

// give ends the publisher without waiting, and returns err.
func (s *sender) give(err error) error {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return errors.Join(err, s.end(ctx))
}

// end closes the publisher and waits for its end. What is unconfirmed is counted by the
// caller, or stays in the outbox.
func (s *sender) end(ctx context.Context) error {
	err := s.pub.Close(ctx)
	err = errors.Join(err, <-s.done)
	var unconfirmed *publisher.UnconfirmedError
	if errors.As(err, &unconfirmed) {
		return nil
	}
	return err
}

// accepted is a message whose acknowledgement is awaited.
type accepted struct {
	message
	line    int // 0 if it came from flags
	receipt *publisher.Receipt
	err     error // it was not accepted
}

// accept hands messages of one session over, in their order; what it can not hand over
// has its err set.
func (s *sender) accept(ctx context.Context, session *publisher.Session, group []*accepted) {
	for len(group) > 0 {
		n := 1
		if group[0].class == bus.ClassProjection {
			group[0].receipt, group[0].err = s.append(ctx, session, group[0].body)
			group = group[1:]
			continue
		}
		for n < len(group) && group[n].class != bus.ClassProjection {
			n++
		}
		messages := make([]publisher.Message, n)
		for i, a := range group[:n] {
			messages[i] = publisher.Message{Class: a.class, EventID: a.eventID, Body: a.body}
		}
		receipts, err := session.Publish(ctx, messages...)
		for i, a := range group[:n] {
			if a.err = err; err == nil {
				a.receipt = receipts[i]
			}
		}
		group = group[n:]
	}
}

func (s *sender) append(ctx context.Context, session *publisher.Session, body []byte) (*publisher.Receipt, error) {
	page, err := bus.ParsePage(body)
	if err != nil {
		return nil, err
	}
	return session.Append(ctx, page.Events...)
}

// session opens a session once.
func (s *sender) session(ctx context.Context, k bus.Key) (*publisher.Session, error) {
	if known := s.sessions[k]; known != nil {
		return known, nil
	}
	session, err := s.pub.Session(ctx, k)
	if err == nil {
		s.sessions[k] = session
	}
	return session, err
}

// hopeless is how long what only an operator can change is tried.
const hopeless = 2 * time.Second

// wait waits until the message is what a line is acknowledged for. Without an outbox
// that takes ackTimeout at most.
func (s *sender) wait(ctx context.Context, a *accepted) (publisher.Outcome, error) {
	if s.publishOptions.wait == waitKept {
		return publisher.Outcome{}, nil
	}
	begin := time.Now()
	for {
		step, cancel := context.WithTimeout(ctx, hopeless/4)
		var out publisher.Outcome
		var err error
		if s.publishOptions.wait == waitMaterialized {
			out, err = a.receipt.Materialized(step)
		} else {
			out.IngestSeq, err = a.receipt.Stored(step)
			out.Ordinal = a.receipt.Ordinal()
		}
		cancel()
		since := time.Since(begin)
		switch {
		case err == nil, !errors.Is(err, context.DeadlineExceeded):
			return out, err
		case ctx.Err() != nil:
			return out, errors.Join(context.Cause(ctx), err)
		case s.outbox != "":
		case since > ackTimeout,
			since > hopeless && (errors.Is(err, publisher.ErrNoStream) || errors.Is(err, publisher.ErrNotPermitted)):
			return out, fmt.Errorf("%w: %w", errNoAnswer, s.explain(err))
		}
	}
}

// errNoAnswer ends the reading: what comes next would not fare better.
var errNoAnswer = errors.New("it was not acknowledged in time")

// print prints the acknowledgement.
func (s *sender) print(a *accepted, out publisher.Outcome, failed error) error {
	word := s.publishOptions.wait
	if word == waitMaterialized {
		word = outcomeOf(out, failed)
	}
	line := []byte(word)
	if out.IngestSeq != 0 {
		line = fmt.Appendf(line, " ingest %d", out.IngestSeq)
	}
	line = fmt.Appendf(line, " %s/%s %s", visible(a.key.Workspace), visible(a.key.Session), a.class)
	if s.asJSON {
		line = []byte{'{'}
		if out.IngestSeq != 0 {
			line = append(strconv.AppendUint(append(line, `"ingest_seq":`...), out.IngestSeq, 10), ',')
		}
		line = bus.AppendQuoted(append(line, `"workspace_id":`...), a.key.Workspace)
		line = bus.AppendQuoted(append(line, `,"session_id":`...), a.key.Session)
		line = bus.AppendQuoted(append(line, `,"class":`...), string(a.class))
		if a.eventID != "" {
			line = bus.AppendQuoted(append(line, `,"event_id":`...), a.eventID)
		}
		if s.publishOptions.wait == waitMaterialized {
			line = bus.AppendQuoted(append(line, `,"outcome":`...), word)
			var rejected *publisher.RejectedError
			if errors.As(failed, &rejected) {
				line = bus.AppendQuoted(append(line, `,"reason":`...), string(rejected.Reason))
			}
		}
		if out.Ordinal != 0 {
			line = strconv.AppendUint(append(line, `,"ordinal":`...), out.Ordinal, 10)
		}
		line = append(line, '}')
	}
	return printLines(s.env.stdout, [][]byte{line})
}

// outcomeOf is what became of a message in one word, empty if that is not known.
func outcomeOf(out publisher.Outcome, err error) string {
	switch {
	case err == nil && out.Duplicate:
		return "duplicate"
	case err == nil:
		return "applied"
	case errors.Is(err, publisher.ErrRejected):
		return "rejected"
	case errors.Is(err, publisher.ErrForgotten):
		return "dropped"
	}
	return ""
}

// explain adds what to look at.
func (s *sender) explain(err error) error {
	switch {
	case errors.Is(err, publisher.ErrNoStream):
		return fmt.Errorf("%s: no stream takes it, has skald serve run on this server, with this prefix?: %w", s.conn, err)
	case errors.Is(err, publisher.ErrTimeout):
		return fmt.Errorf("%s: no answer within %s, it may be stored or not: %w", s.conn, ackTimeout, err)
	case errors.Is(err, publisher.ErrDisconnected), errors.Is(err, publisher.ErrClosed):
		return fmt.Errorf("%s: the connection was lost, it may be stored or not: %w", s.conn, err)
	}
	return fmt.Errorf("%s: %w", s.conn, err)
}
