package api

import (
	"context"
	"fmt"
	"net/http"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Sessions answers a list of sessions, {"sessions":[…],"next_after":N|null}:
// next_after is null if there are no more. maxBytes bounds the answer, 0 being
// the store's own bound; a single session that does not fit is CodeTooLarge.
func (a *API) Sessions(ctx context.Context, p Params, maxBytes int) ([]byte, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	var q store.SessionsQuery
	err := p.only(ParamSession, ParamWorkspace, ParamAfter, ParamLimit)
	if err != nil {
		return nil, err
	}
	if q.Session, err = p.id(ParamSession); err != nil {
		return nil, err
	}
	if q.Workspace, err = p.id(ParamWorkspace); err != nil {
		return nil, err
	}
	if q.After, err = p.place(); err != nil {
		return nil, err
	}
	if q.Limit, err = p.limit(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	q.MaxBytes, q.Within = maxBytes, a.within
	page, err := a.reader.Sessions(ctx, q)
	if err != nil {
		return nil, err
	}
	return fits(page.AppendJSON(nil), maxBytes)
}

// Session answers one session. With no workspace_id the id must be that of one
// workspace's session only, else the error is bus.ErrAmbiguous.
func (a *API) Session(ctx context.Context, id string, p Params, maxBytes int) ([]byte, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	if err := p.only(ParamWorkspace); err != nil {
		return nil, err
	}
	if err := CheckID(ParamSession, id); err != nil {
		return nil, err
	}
	workspace, err := p.id(ParamWorkspace)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	body, err := a.reader.SessionWithin(ctx, id, workspace, a.within)
	if err != nil {
		return nil, err
	}
	return fits(body, maxBytes)
}

// Position answers where a session's chain and its publishers' counts stand, as
// far as the INGEST position that it names. A session that nothing is known of
// stands at the beginning; a forgotten one is bus.ErrNotFound.
func (a *API) Position(ctx context.Context, k bus.Key, p Params, maxBytes int) ([]byte, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	if err := p.only(); err != nil {
		return nil, err
	}
	if err := checkKey(k); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	// The position before the state: then the state holds at least what the
	// position claims.
	st, err := a.reader.Status(ctx)
	if err != nil {
		return nil, err
	}
	state, err := a.reader.LoadState(ctx, k)
	if err != nil {
		return nil, err
	}
	if state.Forgotten {
		return nil, fmt.Errorf("%w: the session was forgotten", bus.ErrNotFound)
	}
	return fits(state.AppendPosition(nil, k, st.IngestSeq, st.Epoch), maxBytes)
}

func checkKey(k bus.Key) error {
	if err := CheckID(ParamWorkspace, k.Workspace); err != nil {
		return err
	}
	return CheckID(ParamSession, k.Session)
}

// fits returns the body if it is within maxBytes, or there is no bound. An answer
// that can not be cut may be larger: a session's view may hold more than one
// message of the server carries.
func fits(body []byte, maxBytes int) ([]byte, error) {
	if maxBytes == 0 || len(body) <= maxBytes {
		return body, nil
	}
	return nil, &Failure{
		Status: http.StatusInsufficientStorage, Code: CodeTooLarge,
		Message: fmt.Sprintf("the answer of %d bytes does not fit into a message of this server, which carries %d; ask over HTTP", len(body), maxBytes),
	}
}
