//go:build unix

package e2e_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/internal/sse"
)

// sseStream is an open stream of server-sent events, and what came.
type sseStream struct {
	resp   *http.Response
	d      *sse.Decoder
	cancel context.CancelFunc
	last   string   // id
	facts  []string // data
}

// streams has no limit of connections to a host, and no deadline.
var streams = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

// follow opens a stream behind a cursor, "" for what comes next. It ends with the test.
func (s *server) follow(t *testing.T, q url.Values, cursor string) *sseStream {
	t.Helper()
	out, err := follow(s.http, q, cursor)
	require.NoError(t, err)
	t.Cleanup(out.close)
	return out
}

func follow(base string, q url.Values, cursor string, headers ...string) (*sseStream, error) {
	ctx, cancel := context.WithCancel(context.Background())
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, base+"/api/v1/events?"+q.Encode(), nil)
	if err != nil {
		cancel()
		return nil, err
	}
	req.Header.Set("Accept", "text/event-stream")
	if cursor != "" {
		req.Header.Set("Last-Event-ID", cursor)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := streams.Do(req)
	if err != nil {
		cancel()
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		body, _ := io.ReadAll(resp.Body)
		resp.Body.Close()
		cancel()
		return nil, fmt.Errorf("%w: %s: %s", errRefused, resp.Status, body)
	}
	return &sseStream{resp: resp, d: sse.NewDecoder(resp.Body), cancel: cancel, last: cursor}, nil
}

func (s *sseStream) close() {
	s.cancel()
	s.resp.Body.Close()
}

var (
	errRefused = errors.New("the stream is refused")
	errRule    = errors.New("a frame breaks a rule")
	errStream  = errors.New("stream_error") // by which the gateway says why it ends a stream
)

// next reads one fact.
func (s *sseStream) next() (string, error) {
	e, err := s.d.Next()
	if err != nil {
		return "", err
	}
	if e.Name == "stream_error" {
		return "", fmt.Errorf("%w: %s", errStream, e.Data)
	}
	var fact struct {
		Seq  uint64
		Type string
	}
	if err := json.Unmarshal(e.Data, &fact); err != nil {
		return "", fmt.Errorf("%w: %q is no fact: %w", errRule, e.Data, err)
	}
	if e.ID != fmt.Sprint(fact.Seq) || e.Name != fact.Type {
		return "", fmt.Errorf("%w: frame %s %s holds %s", errRule, e.ID, e.Name, e.Data)
	}
	s.last = e.ID
	return string(e.Data), nil
}

// read collects what comes for a while, until n facts are there or the stream ends.
// An end that was asked for is none; a frame that breaks a rule is an error.
func (s *sseStream) read(n int, most time.Duration) error {
	over := time.AfterFunc(most, s.cancel)
	defer over.Stop()
	for len(s.facts) < n {
		fact, err := s.next()
		if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		s.facts = append(s.facts, fact)
	}
	return nil
}

// need reads n facts, or fails the test.
func (s *sseStream) need(t *testing.T, n int) []string {
	t.Helper()
	require.NoError(t, s.read(n, patience))
	require.Len(t, s.facts, n)
	return s.facts
}

// sseFeed follows as an EventSource does: a stream that is lost is opened again behind
// its last id, and one that is refused is not.
func sseFeed(t testing.TB, base string, q url.Values, cursor string) *feed {
	t.Helper()
	f := newFeed(t, "server-sent events "+q.Encode())
	ctx, cancel := context.WithCancel(context.Background())
	one := func() error {
		s, err := follow(base, q, cursor)
		if err != nil {
			return err
		}
		defer s.close()
		defer context.AfterFunc(ctx, s.close)()
		for {
			fact, err := s.next()
			if err != nil {
				return err
			}
			cursor = s.last
			f.add(fact)
		}
	}
	go func() {
		defer close(f.done)
		for ctx.Err() == nil {
			err := one()
			passes := !errors.Is(err, errRefused) && !errors.Is(err, errRule)
			if errors.Is(err, errStream) {
				passes = strings.Contains(err.Error(), `"code":"unavailable"`) || strings.Contains(err.Error(), `"code":"behind"`)
			}
			if ctx.Err() == nil && !passes {
				f.fail(err)
				return
			}
			select {
			case <-ctx.Done():
			case <-time.After(20 * time.Millisecond): // before it is opened again
			}
		}
	}()
	f.stop, f.kill = cancel, cancel
	t.Cleanup(func() { cancel(); <-f.done })
	return f
}
