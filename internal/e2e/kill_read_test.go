//go:build unix

package e2e_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"os/exec"
	"regexp"
	"strconv"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/target"
)

// readPause is what a reader waits at the newest event, or while nobody answers.
const readPause = 10 * time.Millisecond

// walk is what one reader was given that kept its cursor all the while.
type walk struct {
	name   string
	ledger *ledger
	rng    *rand.Rand
	cursor uint64
	latest uint64
	read   []uint64 // numbers, in the order they came
}

// take adds a page to the walk.
func (w *walk) take(p *target.Page) error {
	if err := w.ledger.enter(w.cursor, p); err != nil {
		return fmt.Errorf("%s from %d: %w", w.name, w.cursor, err)
	}
	if p.Latest < w.latest {
		return fmt.Errorf("%s from %d: the newest was %d and is %d", w.name, w.cursor, w.latest, p.Latest)
	}
	for _, raw := range p.Events {
		e, err := bus.ParseEvent(raw)
		if err != nil {
			return fmt.Errorf("%s from %d: %w", w.name, w.cursor, err)
		}
		w.read = append(w.read, e.Seq)
	}
	w.cursor, w.latest = p.NextAfter, p.Latest
	return nil
}

// limit returns how many rows are asked for.
func (w *walk) limit() string {
	return strconv.Itoa([...]int{1, 2, 7, 50, 200, 1000, 1_000_000}[w.rng.IntN(7)])
}

// overHTTP walks until it is at the end after end was closed. At the newest event
// it looks once more at what it has read, through some filter.
func (w *walk) overHTTP(ctx context.Context, base string, keys []bus.Key, end <-chan struct{}) error {
	for {
		over := closed(end)
		p, err := w.ask(ctx, base, url.Values{"after_seq": {w.position()}, "limit": {w.limit()}})
		if errors.Is(err, errNoAnswer) {
			if err := pause(ctx, readPause); err != nil {
				return fmt.Errorf("%s from %d: %w", w.name, w.cursor, err)
			}
			continue
		}
		if err != nil {
			return err
		}
		if err := w.take(&p); err != nil {
			return err
		}
		switch {
		case len(p.Events) > 0:
		case over && w.cursor == p.Latest:
			return nil
		default:
			if err := w.lookBack(ctx, base, keys); err != nil {
				return err
			}
			if err := pause(ctx, readPause); err != nil {
				return fmt.Errorf("%s from %d: %w", w.name, w.cursor, err)
			}
		}
	}
}

// position returns the cursor in one of the forms that mean the same.
func (w *walk) position() string {
	c := bus.Cursor{Seq: w.cursor}
	if w.rng.IntN(2) == 0 {
		c.Epoch = w.ledger.knownEpoch() // empty at first, which is the plain form
	}
	return c.String()
}

// lookBack reads a page from anywhere behind the cursor again.
func (w *walk) lookBack(ctx context.Context, base string, keys []bus.Key) error {
	after, k := w.rng.Uint64N(w.cursor+1), keys[w.rng.IntN(len(keys))]
	q := url.Values{"after_seq": {strconv.FormatUint(after, 10)}, "limit": {w.limit()}}
	switch w.rng.IntN(4) {
	case 0:
		q.Set("session_id", k.Session)
	case 1:
		q.Set("workspace_id", k.Workspace)
	case 2:
		q.Set("type", bus.TypeError)
	}
	p, err := w.ask(ctx, base, q)
	if errors.Is(err, errNoAnswer) {
		return nil
	}
	if err == nil {
		err = w.ledger.enter(after, &p)
	}
	if err != nil {
		return fmt.Errorf("%s again, %s: %w", w.name, q.Encode(), err)
	}
	return nil
}

// errNoAnswer: the process is not there, or was gone before it had answered.
var errNoAnswer = errors.New("no answer")

// ask asks for a page. An answer that is no page is an error that ends the walk:
// what is in the table can be read as long as anyone answers.
func (w *walk) ask(ctx context.Context, base string, q url.Values) (p target.Page, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/events?"+q.Encode(), nil)
	if err != nil {
		return p, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return p, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		return p, fmt.Errorf("%w: %w", errNoAnswer, err)
	}
	if resp.StatusCode != http.StatusOK {
		return p, fmt.Errorf("%s asks %s: %s: %s", w.name, q.Encode(), resp.Status, body)
	}
	return target.ParsePage(body)
}

// cliNote is how `skald events` says where to go on.
var cliNote = regexp.MustCompile(`(?:at the newest|newest is (\d+)): --after-seq (\d+) goes on from here`)

// overFile walks with the program on the data directory, whoever has it open or
// was killed while writing it. Nothing excuses a failure.
func (w *walk) overFile(ctx context.Context, skald func(args ...string) *exec.Cmd, dir string, end <-chan struct{}) error {
	for {
		over := closed(end)
		cmd := skald("events", "--data", dir, "--json", "--after-seq", strconv.FormatUint(w.cursor, 10), "--limit", w.limit())
		var stdout, stderr bytes.Buffer
		cmd.Stdout, cmd.Stderr = &stdout, &stderr
		if err := cmd.Run(); err != nil {
			return fmt.Errorf("%s from %d: %w: %s", w.name, w.cursor, err, stderr.Bytes())
		}
		note := cliNote.FindStringSubmatch(stderr.String())
		if note == nil {
			return fmt.Errorf("%s from %d: says nothing of how to go on: %s", w.name, w.cursor, stderr.Bytes())
		}
		p := target.Page{Epoch: w.ledger.knownEpoch()}
		for line := range bytes.Lines(stdout.Bytes()) {
			p.Events = append(p.Events, bytes.TrimSuffix(line, []byte("\n")))
		}
		p.NextAfter, _ = strconv.ParseUint(note[2], 10, 64) // the expression matches digits
		p.Latest = p.NextAfter
		if note[1] != "" {
			p.Latest, _ = strconv.ParseUint(note[1], 10, 64)
		}
		if err := w.take(&p); err != nil {
			return err
		}
		if over && len(p.Events) == 0 && w.cursor == p.Latest {
			return nil
		}
		if err := pause(ctx, 10*readPause); err != nil { // a process each time: leave the machine to others
			return fmt.Errorf("%s from %d: %w", w.name, w.cursor, err)
		}
	}
}

// pause waits, or returns why ctx has ended.
func pause(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// closed reports whether c is.
func closed(c <-chan struct{}) bool {
	select {
	case <-c:
		return true
	default:
		return false
	}
}
