//go:build linux

package torture_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/publisher"
)

// keeping runs the sessions of an order with package publisher and an outbox. What it
// was told to be kept is said to be, and has to be applied at the end, whatever happens
// to the worker: it does not send that again itself. A killed one begins behind what
// the ledger has heard; whether the next message was kept it does not know, and gives
// it once more under the same identity.
func (w *worker) keeping() error {
	p, err := publisher.New(w.nc, publisher.Options{Outbox: w.o.Outbox, AckTimeout: 2 * time.Second})
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	ended := make(chan error, 1)
	go func() { ended <- p.Run(ctx) }()
	var wg sync.WaitGroup
	errs := make([]error, len(w.o.Sessions))
	last := make([]uint64, len(w.o.Sessions))
	for i, s := range w.o.Sessions {
		wg.Go(func() { last[i], errs[i] = w.keep(ctx, p, s, uint64(i)) })
	}
	wg.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	// Close waits until all is materialized.
	if err := errors.Join(p.Close(ctx), <-ended); err != nil {
		return fmt.Errorf("close: %w", err)
	}
	for i, s := range w.o.Sessions {
		w.say(s, last[i], finished)
	}
	return nil
}

// keep gives one session's messages to the publisher until the worker stops, and
// returns the last one.
func (w *worker) keep(ctx context.Context, p *publisher.Publisher, s session, stream uint64) (uint64, error) {
	rng := rand.New(rand.NewPCG(w.o.Seed, stream))
	session, err := p.Session(ctx, bus.Key{Workspace: s.Workspace, Session: s.Name})
	if err != nil {
		return 0, err
	}
	j := newJournal(s)
	n := w.o.Kept[s.key()]
	for !w.stopping() {
		if s.Kind == chained {
			first, end := n+1, n+1+rng.Uint64N(9)
			w.say(s, end, sending)
			page, err := bus.ParsePage(j.page(first, end).Data)
			if err != nil {
				return n, err
			}
			if _, err := session.Append(ctx, page.Events...); err != nil {
				return n, fmt.Errorf("append %d to %d: %w", first, end, err)
			}
			n = end
		} else {
			w.say(s, n+1, sending)
			m := s.single(n + 1)
			_, class := splitClass(m.Subject)
			if _, err := session.Publish(ctx, publisher.Message{Class: class, Body: m.Data, EventID: m.Header.Get("Skald-Event-Id")}); err != nil {
				return n, fmt.Errorf("publish %d: %w", n+1, err)
			}
			n++
		}
		w.say(s, n, kept)
		time.Sleep(time.Duration(rng.IntN(w.o.Pause+1)) * time.Millisecond) // a worker's pace
	}
	return n, nil
}

func splitClass(subject string) (string, bus.Class) {
	for i := len(subject) - 1; i >= 0; i-- {
		if subject[i] == '.' {
			return subject[:i], bus.Class(subject[i+1:])
		}
	}
	return subject, ""
}
