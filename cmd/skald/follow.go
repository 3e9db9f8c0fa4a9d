package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/target"
)

// errEnough ends a command that has printed what --count asked for.
var errEnough = errors.New("enough")

// interruptible returns a context that Ctrl-C or SIGTERM ends, so that a reader can
// say where it was; once more ends the process. A reader of standard output that
// goes away is an error of the next write instead of the process's end.
func interruptible(ctx context.Context) (context.Context, context.CancelFunc) {
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, syscall.SIGTERM)
	pipe := make(chan os.Signal, 1)
	signal.Notify(pipe, syscall.SIGPIPE)
	restore := context.AfterFunc(ctx, stop)
	return ctx, func() {
		restore()
		stop()
		signal.Stop(pipe)
	}
}

// sink writes events to standard output, a line each.
type sink struct {
	e    env
	json bool
	most int        // characters of a line for people
	left uint64     // events until it is enough; 0 is no bound
	at   bus.Cursor // behind the last that was written
	n    uint64
}

// newSink returns the sink of a command. In a pipe, or if asJSON, lines are the
// wire's bytes.
func newSink(e env, asJSON bool, count uint64) *sink {
	return &sink{e: e, json: asJSON || !terminal(e.stdout), most: width(e.stdout), left: count}
}

// write writes one event, and returns errEnough behind the last one that is wanted.
func (s *sink) write(raw []byte, at bus.Cursor) error {
	line := append(raw[:len(raw):len(raw)], '\n')
	if !s.json {
		ev, err := bus.ParseEvent(raw)
		if err != nil {
			return fmt.Errorf("read event: %w", err)
		}
		head := fmt.Sprintf("%-8d %s  %s/%s  %s  ", ev.Seq, clock(&ev.RecordedAt), ev.Workspace, ev.Session, ev.Type)
		line = []byte(clip(visible(head+string(ev.Data)), s.most) + "\n")
	}
	if _, err := s.e.stdout.Write(line); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	s.at = at
	if s.n++; s.n == s.left {
		return errEnough
	}
	return nil
}

// end says how to go on, and returns the command's error: a reader that has gone
// away is none. from is where to go on if nothing was written.
func (s *sink) end(err error, from bus.Cursor) error {
	at := s.at
	if at.Epoch == "" || err == nil && from.Seq > at.Seq {
		at = from
	}
	if at.Epoch != "" {
		s.e.note("%s: --after-seq %s goes on from here", count(int(s.n), "event", "events"), at)
	}
	if errors.Is(err, errEnough) || gone(err) {
		return nil
	}
	return advised(err)
}

// gone reports whether standard output was closed by its reader.
func gone(err error) bool {
	return errors.Is(err, errOutput) && (errors.Is(err, syscall.EPIPE) || errors.Is(err, io.ErrClosedPipe))
}

// print prints events until it is enough, by whatever way the target has.
func (o *eventsFlags) print(ctx context.Context, e env, t target.Target, p api.Params) error {
	out := newSink(e, o.json, o.count)
	if n, ok := t.(*target.NATS); ok && o.follow {
		return o.stream(ctx, e, n, p, out)
	}
	var at bus.Cursor
	var err error
	if o.follow {
		at, err = target.Follow(ctx, t, p, out.write, troubled(e))
	} else {
		at, err = target.Poll(ctx, t, p, true, out.write, troubled(e))
	}
	return out.end(err, at)
}

// troubled tells of a place that does not answer, and of its coming back.
func troubled(e env) func(error) {
	return func(err error) {
		if err != nil {
			e.note("skald: interrupted, trying again: %v", err)
		} else {
			e.note("skald: goes on")
		}
	}
}

// stream follows over NATS.
func (o *eventsFlags) stream(ctx context.Context, e env, n *target.NATS, p api.Params, out *sink) error {
	fo := consumer.FollowOptions{Subjects: n.Subjects(), Logger: newLogger(e, slog.LevelWarn), Session: o.session.value, Workspace: o.workspace.value}
	for _, name := range []string{api.ParamSession, api.ParamWorkspace} {
		if v, ok := p[name]; ok {
			if err := api.CheckID(name, v[0]); err != nil {
				return err
			}
		}
	}
	if o.kind.given {
		fo.Types = []string{o.kind.value}
	}
	if v := p[api.ParamAfterSeq]; len(v) > 0 && v[0] != "" {
		from, err := bus.ParseCursor(api.ParamAfterSeq, v[0])
		if err != nil {
			return usage("%w", err)
		}
		fo.From = &from
	}
	js, err := jetstream.New(n.Conn())
	if err != nil {
		return fmt.Errorf("use JetStream: %w", err)
	}
	f, err := consumer.Follow(js, fo)
	if err != nil {
		return usage("%w", err)
	}
	for ev, err := range f.Events(ctx) {
		if err == nil {
			err = out.write(ev.AppendJSON(nil), f.At(ev))
		}
		if err != nil {
			return out.end(err, f.Cursor())
		}
	}
	return out.end(nil, f.Cursor())
}

// parseMoment reads a duration before now, or a time: without zone a local one.
func parseMoment(s string, now time.Time) (time.Time, error) {
	ago := s
	if days, ok := strings.CutSuffix(s, "d"); ok {
		if n, err := strconv.ParseUint(days, 10, 16); err == nil {
			ago = strconv.FormatUint(24*n, 10) + "h"
		}
	}
	if d, err := time.ParseDuration(ago); err == nil {
		if d < 0 {
			return now, errors.New("must not be negative, it is how long ago")
		}
		return now.Add(-d), nil
	}
	for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04:05", "2006-01-02 15:04:05", "2006-01-02T15:04", "2006-01-02 15:04", "2006-01-02"} {
		if t, err := time.ParseInLocation(layout, s, now.Location()); err == nil {
			return t, nil
		}
	}
	return now, errors.New("must be a duration like 90s, 2h or 7d, or a time like 2026-05-01, 2026-05-01T12:00 or 2026-05-01T12:00:00Z")
}
