//go:build linux

package torture_test

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
	"github.com/skaldbus/skald/internal/sse"
)

// readFollow follows with package consumer, and begins again behind its cursor now and
// then.
func (f *fleet) readFollow(ctx context.Context, r *reader) error {
	js, subjects, err := r.open()
	if err != nil {
		return err
	}
	defer js.Conn().Close()
	for ctx.Err() == nil {
		follower, err := consumer.Follow(js, consumer.FollowOptions{Subjects: subjects, Workspace: r.workspace, From: &bus.Cursor{Seq: r.cursor}})
		if err != nil {
			return err
		}
		left := 20 + r.rng.IntN(1000)
		for ev, err := range follower.Events(ctx) {
			if err != nil {
				if f.passing(err) {
					break
				}
				return err
			}
			if err := f.take(r, ev.AppendJSON(nil)); err != nil {
				return err
			}
			if left--; left == 0 {
				break
			}
		}
	}
	return nil
}

// readStream reads server-sent events from one store or another.
func (f *fleet) readStream(ctx context.Context, r *reader) error {
	client := http.Client{} // streams have no end to wait for
	for ctx.Err() == nil {
		time.Sleep(time.Duration(r.rng.IntN(50)) * time.Millisecond)
		s := f.anyStore(r.rng)
		if err := f.stream(ctx, r, &client, s); err != nil {
			return fmt.Errorf("%s: %w", s.name, err)
		}
	}
	return nil
}

// stream reads one stream until it breaks, or is left.
func (f *fleet) stream(ctx context.Context, r *reader, client *http.Client, s *store) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	q := url.Values{}
	if r.workspace != "" {
		q.Set("workspace_id", r.workspace)
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url("/api/v1/events?"+q.Encode()), nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", "text/event-stream")
	req.Header.Set("Last-Event-ID", strconv.FormatUint(r.cursor, 10))
	// A frozen server neither answers nor breaks.
	quiet := time.AfterFunc(5*time.Second, cancel)
	defer quiet.Stop()
	resp, err := client.Do(req)
	if err != nil {
		return nil //nolint:nilerr // it is down
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		body, err := io.ReadAll(resp.Body)
		var p page
		if err == nil && json.Unmarshal(body, &p) == nil && (resp.StatusCode >= 500 || f.pastItsEnd(p)) {
			return nil // it is not ready
		}
		return fmt.Errorf("status %d: %s", resp.StatusCode, body)
	}
	d := sse.NewDecoder(resp.Body)
	for left := 20 + rand.IntN(1000); left > 0; left-- {
		e, err := d.Next()
		if err != nil {
			return nil //nolint:nilerr // it broke
		}
		quiet.Reset(5 * time.Second)
		if e.Name == "stream_error" {
			return nil
		}
		before := r.cursor
		if err := f.take(r, e.Data); err != nil {
			return err
		}
		if e.ID != strconv.FormatUint(r.cursor, 10) {
			return fmt.Errorf("id %s of number %d, behind %d", e.ID, r.cursor, before)
		}
	}
	return nil
}
