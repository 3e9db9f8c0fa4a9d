package main

import (
	"context"
	"errors"
	"fmt"
)

// actor is a part of serve that runs until its context ends.
type actor struct {
	name string
	run  func(context.Context) error
}

// runStack starts the actors in their order and runs them until ctx ends or one of
// them does. Then it stops them from the last to the first, each only when the one
// above it has ended: what others stand on goes last. An actor that ends by
// itself is an error, whatever it returns.
func runStack(ctx context.Context, actors ...actor) error {
	type running struct {
		cancel context.CancelFunc
		done   chan struct{} // closed when err is set
		err    error
	}
	stack := make([]*running, len(actors))
	first := make(chan int, len(actors)) // those that have ended; room for all, so none blocks
	for i, a := range actors {
		actx, cancel := context.WithCancel(context.WithoutCancel(ctx))
		r := &running{cancel: cancel, done: make(chan struct{})}
		stack[i] = r
		go func() {
			r.err = a.run(actx)
			close(r.done)
			first <- i
		}()
	}
	var errs []error
	select {
	case <-ctx.Done():
	case i := <-first:
		if stack[i].err == nil {
			errs = append(errs, fmt.Errorf("%s has ended by itself", actors[i].name))
		}
	}
	for i := len(stack) - 1; i >= 0; i-- {
		stack[i].cancel()
		<-stack[i].done
		if err := stack[i].err; err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", actors[i].name, err))
		}
	}
	return errors.Join(errs...)
}
