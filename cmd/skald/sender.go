package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
)

// publisher sends messages and prints their acknowledgements.
type publisher struct {
	env    env
	conn   *target.NATS
	js     jetstream.JetStream
	asJSON bool
	most   int64 // bytes of a message's headers and body
}

func newPublisher(e env, conn *target.NATS, asJSON bool) (*publisher, error) {
	js, err := jetstream.New(conn.Conn(), jetstream.WithPublishAsyncMaxPending(2*maxUnacknowledged), jetstream.WithPublishAsyncTimeout(ackTimeout))
	if err != nil {
		return nil, fmt.Errorf("use JetStream: %w", err)
	}
	return &publisher{env: e, conn: conn, js: js, asJSON: asJSON, most: conn.Conn().MaxPayload() - bus.PayloadReserve}, nil
}

// sent is a message whose acknowledgement is awaited.
type sent struct {
	message
	line int // 0 if it came from flags
	ack  jetstream.PubAckFuture
}

func (p *publisher) send(m message, line int) (sent, error) {
	// Tried once: a try of its own would be stored after messages sent later.
	ack, err := p.js.PublishMsgAsync(&nats.Msg{
		Subject: p.conn.Subjects().Ingest(m.key, m.class), Header: m.headers(), Data: m.body,
	}, jetstream.WithRetryAttempts(0))
	if err != nil {
		return sent{}, p.explain(err)
	}
	return sent{message: m, line: line, ack: ack}, nil
}

// wait returns the sequence that the message was stored under. It takes
// ackTimeout at most.
func (p *publisher) wait(s sent) (uint64, error) {
	select {
	case ack := <-s.ack.Ok():
		return ack.Sequence, nil
	case err := <-s.ack.Err():
		return 0, p.explain(err)
	}
}

func (p *publisher) print(m message, seq uint64) error {
	line := []byte(fmt.Sprintf("stored ingest %d %s/%s %s", seq, visible(m.key.Workspace), visible(m.key.Session), m.class))
	if p.asJSON {
		line = strconv.AppendUint([]byte(`{"ingest_seq":`), seq, 10)
		line = bus.AppendQuoted(append(line, `,"workspace_id":`...), m.key.Workspace)
		line = bus.AppendQuoted(append(line, `,"session_id":`...), m.key.Session)
		line = bus.AppendQuoted(append(line, `,"class":`...), string(m.class))
		if m.eventID != "" {
			line = bus.AppendQuoted(append(line, `,"event_id":`...), m.eventID)
		}
		line = append(line, '}')
	}
	return printLines(p.env.stdout, [][]byte{line})
}

// one publishes a single message.
func (p *publisher) one(m message) error {
	s, err := p.send(m, 0)
	if err != nil {
		return fmt.Errorf("publish: not sent: %w", err)
	}
	seq, err := p.wait(s)
	if err != nil {
		return fmt.Errorf("publish: not acknowledged: %w", err)
	}
	return p.print(m, seq)
}

// lines publishes a message a line. One goroutine reads and sends, another waits
// for acknowledgements in the order they were sent for; a full channel between
// them blocks the reading. What is wrong with one message is said, and the rest
// goes on; without a connection, or a stream, nothing more is read.
func (p *publisher) lines(ctx context.Context, defaults message) error {
	var c counts
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var g errgroup.Group
	queue := make(chan sent, maxUnacknowledged)
	g.Go(func() error {
		defer close(queue)
		return p.sendLines(ctx, defaults, queue, &c)
	})
	g.Go(func() error { return p.collect(queue, &c, cancel) })
	err := g.Wait()
	if c.wrong+c.failed > 0 || err != nil {
		p.env.note("skald: %d stored, %d not acknowledged, %d wrong", c.stored, c.failed, c.wrong)
	} else if c.stored == 0 {
		p.env.note("skald: 0 stored, standard input has no lines")
	}
	if err == nil && c.wrong+c.failed > 0 {
		err = errSaid
	}
	return err
}

// counts of lines; wrong belongs to the reading goroutine, the others to the
// waiting one.
type counts struct{ wrong, stored, failed int }

func (p *publisher) sendLines(ctx context.Context, defaults message, queue chan<- sent, c *counts) error {
	in := newLines(p.env.stdin, int(p.most)+maxLineOverhead)
	for n := 1; ctx.Err() == nil; n++ {
		line, err := in.next()
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil && !errors.Is(err, errLineTooLong):
			return fmt.Errorf("read standard input: %w", err)
		case err == nil && len(bytes.TrimSpace(line)) == 0:
			continue
		}
		var m message
		if err == nil {
			m, err = parseMessage(line, defaults)
		}
		if err == nil {
			err = m.check(p.most)
		}
		if err != nil {
			c.wrong++
			p.env.note("skald: line %d: %v", n, err)
			continue
		}
		s, err := p.send(m, n)
		if err != nil {
			return fmt.Errorf("publish line %d: neither it nor what follows was sent: %w", n, err)
		}
		queue <- s
	}
	return nil
}

// collect waits for all that was sent, to the end of the queue. An error that
// concerns more than one message is said at once and calls stop, so that reading
// ends with the line at hand.
func (p *publisher) collect(queue <-chan sent, c *counts, stop func()) error {
	var failure error
	for s := range queue {
		seq, err := p.wait(s)
		var refused *jetstream.APIError
		switch {
		case err == nil:
			c.stored++
			if failure == nil {
				failure = p.print(s.message, seq)
			}
		case errors.As(err, &refused):
			c.failed++
			p.env.note("skald: line %d: not acknowledged: %v", s.line, err)
		default:
			c.failed++
			if failure == nil {
				p.env.note("skald: line %d: not acknowledged, and no more is read: %v", s.line, err)
				failure = errSaid
			}
		}
		if failure != nil {
			stop()
		}
	}
	return failure
}

// explain adds what to look at.
func (p *publisher) explain(err error) error {
	var refused *jetstream.APIError
	switch {
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%s: no stream takes it, has skald serve run on this server, with this prefix?: %w", p.conn, err)
	case errors.Is(err, jetstream.ErrAsyncPublishTimeout):
		return fmt.Errorf("%s: no answer within %s, it may be stored or not: %w", p.conn, ackTimeout, err)
	case errors.Is(err, nats.ErrDisconnected), errors.Is(err, nats.ErrConnectionClosed):
		return fmt.Errorf("%s: the connection was lost, it may be stored or not: %w", p.conn, err)
	case errors.As(err, &refused):
		return fmt.Errorf("%s: refused: %w", p.conn, err)
	}
	return fmt.Errorf("%s: %w", p.conn, err)
}
