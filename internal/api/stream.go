package api

import (
	"context"

	"github.com/skaldbus/skald/materializer/store"
)

// HeaderLastEventID is the header with which a client of server-sent events resumes.
const HeaderLastEventID = "Last-Event-ID"

// Stream checks the query of a live stream of events and returns what it asks for: the
// filters, and the cursor, nil if it begins with what comes next. lastEventID are the
// values of the header of that name. Given beside after_seq it must be the same place.
// The query is of rows to come, so it has no limit. A cursor that can not be followed is
// an error as with [API.Events].
func (a *API) Stream(ctx context.Context, p Params, lastEventID []string) (store.PageQuery, store.Head, error) {
	if err := a.ready(); err != nil {
		return store.PageQuery{}, store.Head{}, err
	}
	q := store.PageQuery{Within: a.within}
	var head store.Head
	if err := p.only(ParamAfterSeq, ParamSession, ParamWorkspace, ParamType); err != nil {
		return q, head, err
	}
	if err := p.events(&q); err != nil {
		return q, head, err
	}
	last, err := Params{HeaderLastEventID: lastEventID}.cursor(HeaderLastEventID)
	if err != nil {
		return q, head, err
	}
	switch {
	case last == nil:
	case q.After == nil || q.After.Epoch == "" && q.After.Seq == last.Seq:
		q.After = last
	case q.After.Seq != last.Seq || last.Epoch != "" && last.Epoch != q.After.Epoch:
		return q, head, refuse(HeaderLastEventID, "is %s and %s is %s, which are not the same place", last, ParamAfterSeq, q.After)
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	head, err = reached(ctx, a, q.After, func() (store.Head, error) { return a.reader.Follows(ctx, q.After) })
	return q, head, err
}
