package api

import (
	"context"
	"errors"
	"strconv"

	"github.com/nats-io/nats.go"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/projection"
	"github.com/skaldbus/skald/materializer/store"
)

// Outcomes of a message, in answers of [API.Outcome].
const (
	OutcomeApplied  = "applied"  // its effect is in the store, of its first copy if it came more than once
	OutcomeRejected = "rejected" // with reason and detail
	OutcomeDropped  = "dropped"  // its session was forgotten
	OutcomeMissing  = "missing"  // later counts of its publisher came, this one did not
	OutcomeUnknown  = "unknown"  // not come up to the INGEST position given, or out of the horizon
)

// Outcome answers what became of a message of the session, named by event_id, or
// by publisher and publisher_seq:
// {"outcome":…,"reason"?,"detail"?,"ingest_position":N,"conflict"?}. The answer holds
// for all of INGEST up to that position at least. conflict is true if an entry says
// that another message came under the same name: one of two senders is not alone.
func (a *API) Outcome(ctx context.Context, k bus.Key, p Params) ([]byte, error) {
	if err := a.ready(); err != nil {
		return nil, err
	}
	if err := checkKey(k); err != nil {
		return nil, err
	}
	id, err := parseIdentity(p)
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, queryTimeout, errSlow)
	defer cancel()
	pos, err := a.reader.Position(ctx)
	if err != nil {
		return nil, err
	}
	outcome, reject, conflict, err := a.outcome(ctx, k, id, pos.HighestTime-a.horizon.Nanoseconds())
	if err != nil {
		return nil, err
	}
	b := append([]byte(nil), `{"outcome":"`...)
	b = append(b, outcome...)
	b = append(b, '"')
	if reject != nil {
		b = append(b, `,"reason":`...)
		b = bus.AppendQuoted(b, string(reject.Reason))
		b = append(b, `,"detail":`...)
		b = bus.AppendQuoted(b, reject.Detail)
	}
	b = append(b, `,"ingest_position":`...)
	b = strconv.AppendUint(b, pos.IngestSeq, 10)
	if conflict {
		b = append(b, `,"conflict":true`...)
	}
	return append(b, '}'), nil
}

// parseIdentity reads which message is meant, by the rules of its headers.
func parseIdentity(p Params) (bus.Identity, error) {
	var none bus.Identity
	if err := p.only(ParamEventID, ParamPublisher, ParamPublisherSeq); err != nil {
		return none, err
	}
	h := nats.Header{}
	parameterOf := map[string]string{
		bus.HeaderEventID: ParamEventID, bus.HeaderPublisher: ParamPublisher, bus.HeaderPublisherSeq: ParamPublisherSeq,
	}
	for header, name := range parameterOf {
		v, given, err := p.one(name)
		if err != nil {
			return none, err
		}
		if given {
			h[header] = []string{v}
		}
	}
	if len(h) == 0 {
		return none, refuse(ParamEventID, "is missing: name the message by %s, or by %s and %s", ParamEventID, ParamPublisher, ParamPublisherSeq)
	}
	id, err := bus.ParseIdentity(h, bus.ClassError)
	var invalid *bus.InvalidError
	switch {
	case errors.As(err, &invalid):
		return none, refuse(parameterOf[invalid.Field], "%s", invalid.Rule)
	case err != nil:
		return none, err
	case id.EventID != "" && id.Publisher != "":
		return none, refuse(ParamEventID, "must not be given beside %s", ParamPublisher)
	}
	return id, nil
}

// outcome decides. What is known of the message itself counts before entries
// that only say something about another copy of it.
func (a *API) outcome(ctx context.Context, k bus.Key, id bus.Identity, notBefore int64) (outcome string, reject *store.Reject, conflict bool, err error) {
	state, err := a.reader.LoadState(ctx, k)
	if err != nil {
		return "", nil, false, err
	}
	if state.Forgotten {
		return OutcomeDropped, nil, false, nil
	}
	know, err := a.known(ctx, k, id, state, notBefore)
	if err != nil {
		return "", nil, false, err
	}
	reject, err = a.reader.RejectOf(ctx, k, id)
	if errors.Is(err, bus.ErrNotFound) {
		reject, err = nil, nil
	}
	conflict = reject != nil && reject.Reason == bus.ReasonConflict
	if know == counted && reject != nil && !final(reject) {
		// The newest entry is of another copy: was the one that used the count
		// rejected too?
		if reject, err = a.reader.FinalRejectOf(ctx, k, id.Publisher, id.Count); errors.Is(err, bus.ErrNotFound) {
			reject, err = nil, nil
		}
	}
	if err != nil {
		return "", nil, false, err
	}
	switch {
	case know == missing:
		return OutcomeMissing, nil, conflict, nil
	case know == applied && (reject == nil || reject.Reason != bus.ReasonNotInEvents):
		return OutcomeApplied, nil, conflict, nil
	case reject != nil && reject.Reason == bus.ReasonResync:
		return OutcomeApplied, nil, conflict, nil // the note of what a resync skipped
	case reject != nil:
		return OutcomeRejected, reject, conflict, nil
	case know == counted:
		return OutcomeApplied, nil, conflict, nil
	}
	return OutcomeUnknown, nil, conflict, nil
}

// knowledge is what the session's state knows of a message.
type knowledge int

const (
	unknown knowledge = iota
	missing           // a count that was passed over
	counted           // a count that was used, by a message applied or rejected
	applied           // an id that was applied
)

func (a *API) known(ctx context.Context, k bus.Key, id bus.Identity, state *projection.State, notBefore int64) (knowledge, error) {
	if id.Publisher == "" {
		_, ok, err := a.reader.KnownID(ctx, k, id.EventID, notBefore)
		if ok {
			return applied, err
		}
		return unknown, err
	}
	switch known, miss := state.Publishers.Status(id.Publisher, id.Count); {
	case miss:
		return missing, nil
	case known:
		return counted, nil
	}
	return unknown, nil
}

// final reports whether an entry tells what became of the message that used its
// count: a conflict is of a later copy, ahead of an earlier try.
func final(r *store.Reject) bool {
	return r.Reason != bus.ReasonConflict && r.Reason != bus.ReasonAhead
}
