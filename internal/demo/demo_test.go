package demo_test

import (
	"context"
	"encoding/json"
	"errors"
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/demo"
)

// types are all that there are.
var types = []string{
	bus.TypeTurnStarted, bus.TypeTurnEnded, bus.TypeError, bus.TypeInputRequired,
	bus.TypeInputResolved, bus.TypeActivityChanged, bus.TypeRuntimeResolved,
}

// A story of a few thousand steps, with workers that are killed in the middle of it,
// gives every fact that it should exactly once, each of the types among them, and
// the reader sees exactly the table.
func TestRun_ExactlyOnce(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options()
	o.Seed, o.Steps = 7, 3000
	var facts []bus.Event
	o.Fact = func(ev bus.Event) error { facts = append(facts, ev); return nil }
	sum, err := demo.Run(t.Context(), o)
	require.NoError(t, err)
	require.Empty(t, sum.Missing)
	require.Equal(t, 3000, sum.Said+sum.Killed)
	require.GreaterOrEqual(t, sum.Killed, 2)
	for _, typ := range types {
		require.Positive(t, sum.Facts[typ], typ)
	}
	rows := w.rows()
	require.Equal(t, rows, facts)
	require.Equal(t, rows[0].Seq, sum.First)
	require.Equal(t, rows[len(rows)-1].Seq, sum.Last)
	p, err := w.store.Reader().Position(t.Context())
	require.NoError(t, err)
	require.EqualValues(t, len(rows), p.EventsSeq)
	status, err := w.store.Reader().Status(t.Context())
	require.NoError(t, err)
	require.Zero(t, status.Rejects, "the story speaks the contract")
	require.Zero(t, status.Unprojected)
	for _, ev := range rows {
		require.NotContains(t, demo.Describe(&ev, nil), "{", "a person can read %s", ev.Data)
	}
}

// The same seed tells the same story: on two buses the sessions have the same facts.
// Only the times differ.
func TestRun_SameSeed(t *testing.T) {
	t.Parallel()
	tell := func(seed uint64) map[bus.Key][]string {
		w := newWorld(t)
		o := w.options()
		o.Seed, o.Steps = seed, 800
		_, err := demo.Run(t.Context(), o)
		require.NoError(t, err)
		out := map[bus.Key][]string{}
		for _, ev := range w.rows() {
			out[ev.Key()] = append(out[ev.Key()], ev.Type+" "+timeless(string(ev.Data)))
		}
		return out
	}
	one := tell(11)
	require.Len(t, one, demo.DefaultSessions)
	require.Equal(t, one, tell(11))
	require.NotEqual(t, one, tell(12))
}

var times = regexp.MustCompile(`(_ms|since)":\d+`)

func timeless(data string) string { return times.ReplaceAllString(data, `$1":0`) }

// A story that is told again on the same bus goes on where its sessions stand.
func TestRun_Again(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options()
	o.Steps = 400
	first, err := demo.Run(t.Context(), o)
	require.NoError(t, err)
	require.Zero(t, first.Resumed)
	second, err := demo.Run(t.Context(), o)
	require.NoError(t, err)
	require.Equal(t, demo.DefaultSessions, second.Resumed)
	require.Greater(t, second.First, first.Last)
}

// The end of the context ends a story in order: what was said is in the table.
func TestRun_Stopped(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	o := w.options()
	ctx, stop := context.WithCancel(t.Context())
	seen := 0
	o.Fact = func(bus.Event) error {
		if seen++; seen == 50 {
			stop()
		}
		return nil
	}
	sum, err := demo.Run(ctx, o)
	require.NoError(t, err)
	require.Empty(t, sum.Missing)
	require.GreaterOrEqual(t, seen, 50)
}

// Who can not take a fact ends the story with its error.
func TestRun_FactFails(t *testing.T) {
	t.Parallel()
	o := newWorld(t).options()
	full := errors.New("no space left on device")
	o.Fact = func(bus.Event) error { return full }
	_, err := demo.Run(t.Context(), o)
	require.ErrorIs(t, err, full)
}

// What can not be meant is refused by name.
func TestRun_Refuses(t *testing.T) {
	t.Parallel()
	for field, change := range map[string]func(*demo.Options){
		"sessions": func(o *demo.Options) { o.Sessions = demo.MaxSessions + 1 },
		"rate":     func(o *demo.Options) { o.Rate = -1 },
		"for":      func(o *demo.Options) { o.For = -1 },
		"steps":    func(o *demo.Options) { o.Steps = -1 },
	} {
		o := (&world{t: t}).options()
		change(&o)
		_, err := demo.Run(t.Context(), o)
		var invalid *bus.InvalidError
		require.ErrorAs(t, err, &invalid)
		require.Equal(t, field, invalid.Field)
	}
}

// A story is a function of its seed, its time never goes back, and each body is JSON.
func TestStory(t *testing.T) {
	t.Parallel()
	for _, sessions := range []int{1, 2, 9, 40} {
		one, err := demo.NewStory(3, sessions)
		require.NoError(t, err)
		two, err := demo.NewStory(3, sessions)
		require.NoError(t, err)
		require.Equal(t, one.Sessions(), two.Sessions())
		keys := map[bus.Key]bool{}
		for _, s := range one.Sessions() {
			keys[s.Key] = true
		}
		require.Len(t, keys, sessions)
		var last demo.Step
		gives := map[string]int{}
		for range 5000 {
			s := one.Next()
			require.Equal(t, s, two.Next())
			require.GreaterOrEqual(t, s.At, last.At)
			if s.Kind == demo.Observe || s.Kind == demo.Activity {
				require.True(t, json.Valid([]byte(demo.PlayedNow(s))), s.Body)
			}
			for _, typ := range s.Gives {
				gives[typ]++
			}
			last = s
		}
		require.Len(t, gives, len(types))
	}
}
