//go:build unix

package main

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// trace notes what happens in which order.
type trace struct {
	mu    sync.Mutex
	notes []string
}

func (tr *trace) add(s string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.notes = append(tr.notes, s)
}

// actor runs until it is stopped, and notes its end.
func (tr *trace) actor(name string, started *sync.WaitGroup, err error) actor {
	started.Add(1)
	return actor{name, func(ctx context.Context) error {
		started.Done()
		<-ctx.Done()
		tr.add(name)
		return err
	}}
}

// The parts are stopped one after the other, from the top down, and what each of
// them complains of is told.
func TestRunStack_StopsFromTheTop(t *testing.T) {
	t.Parallel()
	var tr trace
	var started sync.WaitGroup
	bad := errors.New("bad")
	actors := []actor{tr.actor("low", &started, nil), tr.actor("middle", &started, bad), tr.actor("top", &started, nil)}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		started.Wait()
		cancel()
	}()
	err := runStack(ctx, actors...)
	require.ErrorIs(t, err, bad)
	require.EqualError(t, err, "middle: bad")
	require.Equal(t, []string{"top", "middle", "low"}, tr.notes)
}

// A part that ends by itself ends all, whatever it says.
func TestRunStack_OneEnds(t *testing.T) {
	t.Parallel()
	bad := errors.New("bad")
	for want, end := range map[string]error{"top: bad": bad, "top has ended by itself": nil} {
		var tr trace
		var started sync.WaitGroup
		low := tr.actor("low", &started, nil)
		err := runStack(t.Context(), low, actor{"top", func(context.Context) error { return end }})
		require.EqualError(t, err, want)
		require.Equal(t, []string{"low"}, tr.notes)
	}
}
