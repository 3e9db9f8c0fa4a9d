package api_test

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/store"
)

// The table from errors to what callers are told, and what a client that reads it
// decides with.
func TestFailureOf(t *testing.T) {
	cursor := func(err error) error {
		return fmt.Errorf("read page: %w", &store.CursorError{Err: err, Cursor: bus.Cursor{Seq: 3}, Epoch: "e", Latest: 9, Oldest: 5})
	}
	for _, c := range []struct {
		err    error
		status int
		code   api.Code
		body   string
		is     error
	}{
		{
			fmt.Errorf("query: %w", &api.ParameterError{Parameter: "limit", Rule: "must be at least 1"}), 400, api.CodeBadParameter,
			`{"error":"query: limit: must be at least 1","code":"bad_parameter","parameter":"limit"}`, nil,
		},
		{
			cursor(bus.ErrCursorAhead), 400, api.CodeCursorAhead,
			`{"error":"cursor is ahead of the newest event: cursor 3, epoch e, oldest 5, latest 9","code":"cursor_ahead","latest_seq":9,"oldest_seq":5,"epoch":"e"}`, bus.ErrCursorAhead,
		},
		{
			cursor(bus.ErrCursorGone), 410, api.CodeCursorGone,
			`{"error":"cursor is older than the oldest kept event: cursor 3, epoch e, oldest 5, latest 9","code":"cursor_gone","latest_seq":9,"oldest_seq":5,"epoch":"e"}`, bus.ErrCursorGone,
		},
		{
			cursor(bus.ErrOtherEpoch), 409, api.CodeOtherEpoch,
			`{"error":"cursor belongs to another epoch: cursor 3, epoch e, oldest 5, latest 9","code":"other_epoch","latest_seq":9,"oldest_seq":5,"epoch":"e"}`, bus.ErrOtherEpoch,
		},
		{fmt.Errorf("session: %w", bus.ErrNotFound), 404, api.CodeNotFound, `{"error":"session: not found","code":"not_found"}`, bus.ErrNotFound},
		{
			fmt.Errorf("x: %w", &store.AmbiguousError{Session: "s", Workspaces: []string{"a", "b"}}), 409, api.CodeAmbiguous,
			`{"error":"session \"s\": several workspaces have a session of this id: [\"a\" \"b\"]","code":"ambiguous","candidates":["a","b"]}`, bus.ErrAmbiguous,
		},
		{fmt.Errorf("%w: it is at 1", bus.ErrBehind), 503, api.CodeBehind, `{"error":"this store has not reached the cursor yet: it is at 1","code":"behind"}`, bus.ErrBehind},
		{fmt.Errorf("%w: secret", bus.ErrUnavailable), 503, api.CodeUnavailable, `{"error":"not available at the moment","code":"unavailable"}`, bus.ErrUnavailable},
		{fmt.Errorf("secret: %w", store.ErrBusy), 503, api.CodeUnavailable, `{"error":"not available at the moment","code":"unavailable"}`, bus.ErrUnavailable},
		{fmt.Errorf("secret: %w", context.DeadlineExceeded), 503, api.CodeUnavailable, `{"error":"not available at the moment","code":"unavailable"}`, bus.ErrUnavailable},
		{errors.New("secret"), 500, api.CodeInternal, `{"error":"internal error, see the log of skald serve","code":"internal"}`, nil},
		{fmt.Errorf("secret: %w", store.ErrCorrupt), 500, api.CodeInternal, `{"error":"internal error, see the log of skald serve","code":"internal"}`, nil},
		// A fault in what we stored is ours, although its error looks like the caller's.
		{&bus.InvalidError{Field: "limit", Rule: "secret"}, 500, api.CodeInternal, `{"error":"internal error, see the log of skald serve","code":"internal"}`, nil},
	} {
		f := api.FailureOf(c.err)
		require.Equal(t, c.status, f.Status, "%v", c.err)
		require.Equal(t, c.code, f.Code, "%v", c.err)
		body := f.AppendJSON(nil)
		require.Equal(t, c.body, string(body))
		back, ok := api.ParseFailure(c.status, body)
		require.True(t, ok)
		back.RetryAfter = f.RetryAfter // a header, not a member
		require.Equal(t, f, back)
		if c.is != nil {
			require.ErrorIs(t, back, c.is)
		}
	}
}

// What is no failure of ours is not taken for one.
func TestParseFailure_RefusesOthers(t *testing.T) {
	for _, body := range []string{"", "<html>", "{}", `{"error":"x"}`, `{"code":"x"}`, `[]`, `{"error":5,"code":"x"}`} {
		_, ok := api.ParseFailure(http.StatusBadGateway, []byte(body))
		require.False(t, ok, body)
	}
}
