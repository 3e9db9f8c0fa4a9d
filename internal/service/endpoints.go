package service

import (
	"context"
	"fmt"
	"strings"
	"unicode"

	"github.com/nats-io/nats.go/micro"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
)

// query answers a request. key holds what the subject names, most bounds the
// reply in bytes.
type query func(ctx context.Context, key bus.Key, p api.Params, most int) ([]byte, error)

// addEndpoints subscribes to the subjects of doc.go.
func (s *Service) addEndpoints(ctx context.Context, m micro.Service) error {
	prefix := s.o.Subjects.Prefix()
	for _, e := range []struct {
		name, subject string
		query         query
	}{
		{"events", "api.*.events", inWorkspace(s.events)},
		{"sessions", "api.*.sessions", inWorkspace(s.sessions)},
		{"session", "api.*.session.*", inWorkspace(s.session)},
		{"position", "api.*.position.*", s.position},
		{"outcome", "api.*.outcome.*", s.outcome},
		{"op-events", "op.events", s.events},
		{"op-sessions", "op.sessions", s.sessions},
		{"op-status", "op.status", s.status},
	} {
		err := m.AddEndpoint(e.name, s.handle(ctx, e.query), micro.WithEndpointSubject(prefix+"."+e.subject))
		if err != nil {
			return fmt.Errorf("add endpoint %s: %w", e.name, err)
		}
	}
	return nil
}

// address returns the workspace and the session that a subject names, as far as
// it does.
func (s *Service) address(subject string) (k bus.Key, err error) {
	tokens := strings.Split(strings.TrimPrefix(subject, s.o.Subjects.Prefix()+"."), ".")
	if tokens[0] != "api" || len(tokens) < 2 {
		return k, nil
	}
	if k.Workspace, err = unescape(api.ParamWorkspace, tokens[1]); err != nil {
		return k, err
	}
	if len(tokens) > 3 {
		k.Session, err = unescape(api.ParamSession, tokens[3])
	}
	return k, err
}

func unescape(parameter, token string) (string, error) {
	id, err := bus.Unescape(parameter, token)
	if err != nil {
		return "", &api.ParameterError{Parameter: parameter, Rule: strings.TrimPrefix(err.Error(), parameter+": ")}
	}
	return id, nil
}

// inWorkspace keeps a query within the workspace that the subject names.
func inWorkspace(q query) query {
	return func(ctx context.Context, k bus.Key, p api.Params, most int) ([]byte, error) {
		if err := p.Fix(api.ParamWorkspace, k.Workspace); err != nil {
			return nil, err
		}
		return q(ctx, k, p, most)
	}
}

func (s *Service) events(ctx context.Context, _ bus.Key, p api.Params, most int) ([]byte, error) {
	return s.o.API.Events(ctx, p, min(most, maxPageBytes))
}

func (s *Service) sessions(ctx context.Context, _ bus.Key, p api.Params, most int) ([]byte, error) {
	return s.o.API.Sessions(ctx, p, most)
}

func (s *Service) session(ctx context.Context, k bus.Key, p api.Params, most int) ([]byte, error) {
	return s.o.API.Session(ctx, k.Session, p, most)
}

func (s *Service) position(ctx context.Context, k bus.Key, p api.Params, most int) ([]byte, error) {
	return s.o.API.Position(ctx, k, p, most)
}

func (s *Service) outcome(ctx context.Context, k bus.Key, p api.Params, _ int) ([]byte, error) {
	return s.o.API.Outcome(ctx, k, p)
}

func (s *Service) status(ctx context.Context, _ bus.Key, p api.Params, _ int) ([]byte, error) {
	return s.o.API.Status(ctx, p)
}

// oneLine makes a message fit into a header.
func oneLine(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}
