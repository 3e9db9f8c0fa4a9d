package publisher

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/skaldbus/skald/bus"
)

// maxCountedAsked is about how many messages without a chain one round of questions
// asks for; there are more only after hints were lost.
const maxCountedAsked = 256

// place is where the bus stands with a session.
type place struct {
	chain  bus.ChainPosition
	ingest uint64 // all of INGEST up to here is in it

	publishers []struct {
		ID      string      `json:"publisher"`
		Count   uint64      `json:"count"`
		Missing [][2]uint64 `json:"missing"`
	}
}

// used returns which counts of a publisher the session has seen.
func (p *place) used(publisher string) *usage {
	for _, one := range p.publishers {
		if one.ID == publisher {
			return &usage{count: one.Count, missing: one.Missing}
		}
	}
	return nil
}

// position asks where the session's chain stands.
func (p *Publisher) position(ctx context.Context, k bus.Key) (place, error) {
	body, err := p.request(ctx, "position", k, nil)
	if err != nil {
		return place{}, fmt.Errorf("ask for the position: %w", err)
	}
	var at place
	answer := struct {
		Frontier   frontier `json:"frontier"`
		Ingest     *uint64  `json:"ingest_position"`
		Publishers any      `json:"publishers"`
	}{Ingest: &at.ingest, Publishers: &at.publishers}
	if err := json.Unmarshal(body, &answer); err != nil {
		return place{}, fmt.Errorf("ask for the position: %w: %w", bus.ErrUnavailable, err)
	}
	var ok bool
	if at.chain, ok = answer.Frontier.position(); !ok {
		return place{}, fmt.Errorf("ask for the position: %w: the answer names no digest", bus.ErrUnavailable)
	}
	return at, nil
}

// outcome asks what became of a message without a chain, which has a count or an
// event id. ingest is the position in INGEST up to which the answer holds.
func (s *Session) outcome(ctx context.Context, count uint64, eventID string) (v verdict, ingest uint64, err error) {
	body, err := s.p.request(ctx, "outcome", s.key, question(s.id, count, eventID))
	if err != nil {
		return v, 0, fmt.Errorf("ask for the outcome: %w", err)
	}
	var answer struct {
		Outcome string     `json:"outcome"`
		Reason  bus.Reason `json:"reason"`
		Detail  string     `json:"detail"`
		Ingest  uint64     `json:"ingest_position"`
		// Conflict: another message came under the same count or id.
		Conflict bool `json:"conflict"`
	}
	if err := json.Unmarshal(body, &answer); err != nil {
		return v, 0, fmt.Errorf("ask for the outcome: %w: %w", bus.ErrUnavailable, err)
	}
	if answer.Conflict && eventID == "" {
		// Whichever of the two is ours: the other one is somebody else's.
		return verdict{outcome: outcomeRejected, reason: bus.ReasonConflict, detail: answer.Detail}, answer.Ingest, nil
	}
	return verdict{outcome: answer.Outcome, reason: answer.Reason, detail: answer.Detail}, answer.Ingest, nil
}

// request asks the service about a session.
func (p *Publisher) request(ctx context.Context, what string, k bus.Key, body []byte) ([]byte, error) {
	subject := p.subjects.Prefix() + ".api." + bus.Escape(k.Workspace) + "." + what + "." + bus.Escape(k.Session)
	// So many questions at a time for all sessions; the time counts from then on.
	select {
	case p.asking <- struct{}{}:
		defer func() { <-p.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	before := p.nc.LastError()
	reply, err := p.requestOnce(ctx, &nats.Msg{Subject: subject, Data: body})
	if err != nil {
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		return nil, p.explain("request "+what, subject, err, before)
	}
	switch code := reply.Header.Get(micro.ErrorCodeHeader); code {
	case "":
		return reply.Data, nil
	case "404":
		return nil, ErrForgotten
	default:
		return nil, fmt.Errorf("%w: %s: %s", bus.ErrUnavailable, code, reply.Header.Get(micro.ErrorHeader))
	}
}

// requestOnce waits for an answer for askTimeout, or until the connection is lost: the
// client library would go on waiting for an answer that can not come.
func (p *Publisher) requestOnce(ctx context.Context, m *nats.Msg) (*nats.Msg, error) {
	timed, stop := context.WithTimeout(ctx, askTimeout)
	defer stop()
	ask, cancel := context.WithCancelCause(timed)
	lost := p.nc.StatusChanged(nats.RECONNECTING, nats.CLOSED)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel(nil)
	defer p.nc.RemoveStatusListener(lost)
	if p.nc.Status() == nats.RECONNECTING {
		return nil, nats.ErrDisconnected
	}
	wg.Go(func() {
		select {
		case <-lost:
			cancel(nats.ErrDisconnected)
		case <-ask.Done():
		}
	})
	reply, err := p.nc.RequestMsgWithContext(ask, m)
	if err != nil && errors.Is(context.Cause(ask), nats.ErrDisconnected) {
		err = nats.ErrDisconnected
	}
	return reply, err
}

// final reports whether trying again can not help.
func final(err error) bool {
	for _, f := range []error{ErrClosed, ErrForgotten, ErrTooLarge} {
		if errors.Is(err, f) {
			return true
		}
	}
	return false
}

// ask asks what became of what is stored and has had no hint.
func (s *Session) ask(ctx context.Context) {
	pages, counted := s.questions()
	var err error
	if pages {
		var at place
		if at, err = s.p.position(ctx, s.key); err == nil {
			s.stand(at)
		}
	}
	for _, m := range counted {
		if err != nil {
			break
		}
		var v verdict
		var ingest uint64
		if v, ingest, err = s.outcome(ctx, m.count, m.eventID); err == nil {
			s.answered(m, v, ingest)
		}
	}
	if err != nil && ctx.Err() == nil && !final(err) {
		s.p.note(ctx, s.key, err)
	}
	s.mu.Lock()
	s.isAsking = false
	if s.err == nil {
		if errors.Is(err, ErrForgotten) {
			s.endLocked(ErrForgotten)
		}
		s.askErr, s.askAt = err, time.Time{}
		if s.openLocked() {
			s.askAt = time.Now().Add(s.askWait)
			s.askWait = min(2*s.askWait, maxAskWait)
			s.probeLocked()
		}
	}
	s.mu.Unlock()
	wake(s.wake)
}

// probeLocked has the oldest message sent once more that has waited for long: INGEST
// may have been set back below it, with nothing coming after it that would tell.
func (s *Session) probeLocked() {
	if s.box != nil && len(s.sent) > 0 && s.sent[0].stored && time.Since(s.sent[0].ackedAt) > probeAfter {
		s.markLocked(s.sent[0])
	}
}

// mustAsk reports whether m may have been sent so long ago that the bus may soon not
// know its event id any more.
func (s *Session) mustAsk(m *message) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.box == nil || m.eventID == "" || m.asked || !(m.resumed || m.unsure || m.again) {
		return false
	}
	return time.Since(time.UnixMilli(m.items[0].acceptedAt)) > s.p.o.IDHorizon/2
}

// askBefore asks what became of m before it is sent again, and reports whether it
// has to be.
func (s *Session) askBefore(ctx context.Context, m *message) bool {
	v, _, err := s.outcome(ctx, m.count, m.eventID)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.err != nil || m.settled || ctx.Err() != nil:
	case err != nil && final(err):
		s.endLocked(err)
	case err != nil:
		s.trouble = err
		s.retryAt = time.Now().Add(s.backoff.next())
		s.p.note(ctx, s.key, err)
	case v.outcome == outcomeUnknown:
		m.asked = true
		if age := time.Since(time.UnixMilli(m.items[0].acceptedAt)); age > s.p.o.IDHorizon {
			s.p.o.Logger.WarnContext(ctx, "message of the outbox is older than the id horizon: if the bus had it, it is there twice now",
				slog.String("workspace", s.key.Workspace), slog.String("session", s.key.Session), slog.String("event_id", m.eventID))
		}
		return true
	default:
		s.judgeLocked(m, v)
	}
	return false
}

// questions returns whether to ask for the chain, and the messages to ask for.
func (s *Session) questions() (pages bool, counted []*message) {
	s.mu.Lock()
	defer s.mu.Unlock()
	pages = s.looseLocked()
	for _, m := range s.sent {
		switch {
		case !m.stored:
		case m.page():
			pages = true
		case len(counted) < maxCountedAsked:
			counted = append(counted, m)
		}
	}
	return pages, counted
}

// stand takes in where the bus stands. Pages that it must have seen and that are
// not applied are sent again: they are held before a gap, or lost.
func (s *Session) stand(at place) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil {
		return
	}
	s.advanceLocked(at.chain)
	if s.err != nil {
		return
	}
	if s.looseLocked() && s.loose.ingest <= at.ingest {
		s.endLocked(fmt.Errorf("%w: the bus waits for event %d, which is not kept any more", ErrLost, s.applied.Ordinal+1))
		return
	}
	for _, m := range s.sent {
		if m.page() && m.stored && m.seq <= at.ingest {
			s.sendAgainLocked(at.ingest, false)
			return
		}
	}
}

// answered takes in what became of m.
func (s *Session) answered(m *message, v verdict, ingest uint64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.err != nil || m.settled {
		return
	}
	if v.outcome == outcomeUnknown {
		if ingest < m.seq {
			return // it has not come to it
		}
		v.outcome = outcomeMissing
	}
	v.seq = m.seq
	s.judgeLocked(m, v)
}

// track follows a receipt that the session has let go of.
func (s *Session) track(ctx context.Context, r *Receipt) error {
	b := backoff{d: hintPatience / 4}
	for {
		s.mu.Lock()
		applied, err, seq, count, ordinal := r.applied, s.err, r.seq, r.count, r.ordinal
		s.mu.Unlock()
		if applied {
			return nil
		}
		if err != nil {
			return err
		}
		done, err := s.trackOnce(ctx, r, ordinal, count, seq)
		if done || final(err) || errors.Is(err, ErrLost) || errors.Is(err, ErrRejected) {
			if done {
				s.mu.Lock()
				r.applied = true
				s.mu.Unlock()
			}
			return err
		}
		if !pause(ctx, b.next()) {
			if err != nil {
				return fmt.Errorf("%w: latest question: %w", context.Cause(ctx), err)
			}
			return context.Cause(ctx)
		}
	}
}

func (s *Session) trackOnce(ctx context.Context, r *Receipt, ordinal, count, seq uint64) (done bool, err error) {
	if ordinal != 0 {
		at, err := s.p.position(ctx, s.key)
		if err == nil && at.chain.Ordinal < ordinal && at.ingest >= seq {
			err = ErrLost
		}
		return err == nil && at.chain.Ordinal >= ordinal, err
	}
	v, ingest, err := s.outcome(ctx, count, r.eventID)
	if err != nil {
		return false, err
	}
	switch v.outcome {
	case outcomeApplied, outcomeDuplicate:
		return true, nil
	case outcomeDropped:
		return false, ErrForgotten
	case outcomeRejected:
		return false, &RejectedError{Reason: v.reason, Detail: v.detail, IngestSeq: seq}
	}
	if ingest >= seq {
		return false, ErrLost
	}
	return false, nil
}
