package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher"
)

// input is a line that was read, or why it was not.
type input struct {
	number int
	line   []byte
	err    error
}

// read reads lines in batches: as many as are there, so that what is there is kept with
// one write. It ends with the input, and is left behind when the command is interrupted,
// since a read can not be.
func read(in *lines, out chan<- []input, gone <-chan struct{}) {
	defer close(out)
	var batch []input
	for n := 1; ; n++ {
		line, err := in.next()
		if !errors.Is(err, io.EOF) {
			batch = append(batch, input{n, line, err})
		}
		end := err != nil && !errors.Is(err, errLineTooLong)
		if len(batch) > 0 && (end || len(batch) == maxUnacknowledged || !in.more()) {
			select {
			case out <- batch:
				batch = nil
			case <-gone:
				return
			}
		}
		if end {
			return
		}
	}
}

// counts of lines; kept are those of the failed that the outbox has and sends.
type counts struct{ wrong, acknowledged, failed, kept int }

// send publishes a single message and waits for its acknowledgement.
func (s *sender) send(ctx context.Context, m message) (*accepted, publisher.Outcome, error) {
	a := &accepted{message: m}
	session, err := s.session(ctx, m.key)
	if err == nil {
		s.accept(ctx, session, []*accepted{a})
		err = a.err
	}
	if err != nil {
		return a, publisher.Outcome{}, fmt.Errorf("publish: not sent: %w", err)
	}
	out, err := s.wait(ctx, a)
	if err != nil {
		err = fmt.Errorf("publish: not acknowledged: %w", err)
	}
	return a, out, err
}

// one publishes a single message and prints its acknowledgement.
func (s *sender) one(ctx context.Context, m message) error {
	a, out, err := s.send(ctx, m)
	final := s.publishOptions.wait == waitMaterialized && outcomeOf(out, err) != ""
	if err == nil || final {
		err = errors.Join(err, s.print(a, out, err))
	}
	if err != nil {
		return s.give(err)
	}
	return s.finish(ctx, false)
}

// run publishes a message a line. One goroutine reads, one hands over to the sessions,
// and one waits for the acknowledgements in the order of the lines. What is wrong with one
// message is said, and the rest goes on; what will not be acknowledged in time ends the
// reading.
func (s *sender) run(ctx context.Context, in *lines, defaults message) error {
	var c counts
	reading, stop := context.WithCancel(ctx)
	defer stop()
	inputs := make(chan []input)
	go read(in, inputs, reading.Done())
	size := maxUnacknowledged
	if s.outbox != "" {
		size = publisher.DefaultMaxPendingMessages // as far as the outbox takes it
	}
	queue := make(chan *accepted, size)
	// When the command is interrupted, what is on its way still has some time: closing
	// the publisher ends what waits, with or without an acknowledgement.
	collected := make(chan error, 1)
	go func() { collected <- s.collect(context.WithoutCancel(ctx), queue, &c, stop) }()
	left, err := s.handOver(reading, inputs, defaults, queue)
	close(queue)
	var failure error
	switch {
	case s.outbox != "":
		err = errors.Join(err, s.finish(ctx, ctx.Err() != nil))
		failure = <-collected
	default:
		select {
		case failure = <-collected:
			err = errors.Join(err, s.give(nil))
		case <-ctx.Done():
			err = errors.Join(err, s.finish(ctx, true))
			failure = <-collected
		}
	}
	c.wrong += left.wrong
	c.failed += left.failed
	c.kept += left.kept
	if err == nil {
		err = failure
	}
	return s.sum(c, err, ctx.Err() != nil)
}

// finish closes the publisher: with an outbox when that is empty, unless lines are
// acknowledged when they are kept; soon when the command is interrupted.
func (s *sender) finish(ctx context.Context, soon bool) error {
	closing, cancel := context.WithCancel(context.WithoutCancel(ctx))
	defer cancel()
	most := stopTimeout
	if s.outbox != "" {
		most = outboxStopTimeout
	}
	if soon || s.publishOptions.wait == waitKept || s.outbox == "" {
		defer time.AfterFunc(most, cancel).Stop()
	} else {
		defer context.AfterFunc(ctx, cancel)() // nothing is lost by it
	}
	return s.end(closing)
}

// handOver hands what was read to the sessions, until the input or ctx ends. It counts
// the lines that do not get into the queue.
func (s *sender) handOver(ctx context.Context, inputs <-chan []input, defaults message, queue chan<- *accepted) (c counts, err error) {
	for {
		var batch []input
		var ok bool
		select {
		case batch, ok = <-inputs:
		case <-ctx.Done():
		}
		if !ok {
			return c, nil
		}
		var all []*accepted
		groups := map[bus.Key][]*accepted{}
		var end error
		for _, in := range batch {
			m, err := s.parse(in, defaults)
			switch {
			case err != nil && in.err != nil && !errors.Is(in.err, errLineTooLong):
				end = fmt.Errorf("read standard input: %w", in.err)
			case err != nil:
				c.wrong++
				s.say("skald: line %d: %v", in.number, err)
			case m.body != nil:
				a := &accepted{message: m, line: in.number}
				all = append(all, a)
				groups[m.key] = append(groups[m.key], a)
			}
		}
		var wg sync.WaitGroup
		for k, group := range groups {
			session, err := s.session(ctx, k)
			if err != nil {
				for _, a := range group {
					a.err = err
				}
				continue
			}
			wg.Go(func() { s.accept(ctx, session, group) })
		}
		wg.Wait()
		for i, a := range all {
			select {
			case queue <- a:
				continue
			case <-ctx.Done():
			}
			// Nor those behind it: what is acknowledged has no holes.
			for _, a := range all[i:] {
				c.failed++
				c.kept += s.keeps(a, a.err)
			}
			return c, end
		}
		if end != nil {
			return c, end
		}
	}
}

// parse makes a message of a line; one without a body stands for an empty line.
func (s *sender) parse(in input, defaults message) (m message, err error) {
	if in.err != nil {
		return m, in.err
	}
	if len(bytes.TrimSpace(in.line)) == 0 {
		return m, nil
	}
	if m, err = parseMessage(in.line, defaults); err == nil {
		err = m.check(s.pub.MaxBody()) // the publisher's own bound: it refuses a whole group for one that is larger
	}
	return m, err
}

// collect waits for all that was accepted, to the end of the queue. A message that is not
// acknowledged in time calls stop, so that reading ends, and what follows is not waited for.
func (s *sender) collect(ctx context.Context, queue <-chan *accepted, c *counts, stop func()) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var failure error
	for a := range queue {
		var out publisher.Outcome
		err := a.err
		var invalid *bus.InvalidError
		if errors.As(err, &invalid) {
			c.wrong++
			s.say("skald: line %d: %v", a.line, err)
			continue
		}
		if err == nil {
			out, err = s.wait(ctx, a)
		}
		if failure == nil && (err == nil || s.publishOptions.wait == waitMaterialized && outcomeOf(out, err) != "") {
			if failure = s.print(a, out, err); failure != nil {
				stop()
			}
		}
		if err == nil {
			c.acknowledged++
			continue
		}
		c.failed++
		c.kept += s.keeps(a, err)
		switch {
		case errors.Is(err, errNoAnswer):
			s.say("skald: line %d: not acknowledged, and no more is read: %v", a.line, err)
			failure = errSaid
			stop()
			cancel()
		case ctx.Err() != nil, errors.Is(err, publisher.ErrClosed), errors.Is(err, context.Canceled):
			// Counted in the end.
		default:
			s.say("skald: line %d: not acknowledged: %v", a.line, err)
		}
	}
	return failure
}

// keeps returns 1 if the message, which failed, is in the outbox and sent by the next run.
func (s *sender) keeps(a *accepted, failed error) int {
	if s.outbox == "" || a.err != nil {
		return 0
	}
	// What is final is released, or stays with a session that does not go on by itself.
	for _, final := range []error{publisher.ErrForgotten, publisher.ErrForked, publisher.ErrNotKept, publisher.ErrRejected, publisher.ErrTooLarge} {
		if errors.Is(failed, final) {
			return 0
		}
	}
	return 1
}

// sum says how it went and makes the command's error of it.
func (s *sender) sum(c counts, err error, interrupted bool) error {
	rejected := s.rejected.Load()
	bad := c.wrong+c.failed > 0 || rejected > 0
	if interrupted {
		bad = true
		s.say("skald: interrupted")
	}
	switch {
	case bad || err != nil:
		s.say("skald: %d %s, %d not acknowledged, %d wrong", c.acknowledged, s.publishOptions.wait, c.failed, c.wrong)
		if c.failed > 0 && s.outbox != "" {
			s.say("skald: not acknowledged: %d in the outbox %s, sent by the next run with it; %d not kept", c.kept, s.outbox, c.failed-c.kept)
		}
	case c.acknowledged == 0 && s.outbox == "":
		s.say("skald: 0 stored, standard input has no lines")
	}
	if err == nil && bad {
		err = errSaid
	}
	return err
}
