package target

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/micro"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/materializer/store"
)

// natsTimeout bounds one request; the service itself gives up earlier.
const natsTimeout = 15 * time.Second

// NATS asks the service over NATS, and gives out its connection to commands that
// publish.
type NATS struct {
	nc       *nats.Conn
	server   string
	subjects bus.Subjects
}

// OpenNATS connects to o.Server. Where something else listens, the error is ErrNotNATS.
func OpenNATS(ctx context.Context, o Options) (*NATS, error) {
	subjects, err := bus.NewSubjects(o.Prefix)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrUsage, err)
	}
	o.NATS.URL = o.Server
	nc, err := natsconn.Connect(ctx, o.NATS)
	if err != nil {
		return nil, ExplainConnect(err)
	}
	return &NATS{nc: nc, server: natsconn.Redact(o.Server), subjects: subjects}, nil
}

// Conn returns the connection.
func (n *NATS) Conn() *nats.Conn { return n.nc }

// Subjects returns the subjects of the bus.
func (n *NATS) Subjects() bus.Subjects { return n.subjects }

// Events asks within the workspace if one is named, so that a user with
// permissions for it alone may, else over all.
func (n *NATS) Events(ctx context.Context, p api.Params) ([]byte, error) {
	return n.list(ctx, "events", p)
}

// Sessions asks like Events.
func (n *NATS) Sessions(ctx context.Context, p api.Params) ([]byte, error) {
	return n.list(ctx, "sessions", p)
}

func (n *NATS) list(ctx context.Context, what string, p api.Params) ([]byte, error) {
	if w := p[api.ParamWorkspace]; len(w) == 1 {
		if err := api.CheckID(api.ParamWorkspace, w[0]); err != nil {
			return nil, err
		}
		return n.ask(ctx, "api."+bus.Escape(w[0])+"."+what, p)
	}
	return n.ask(ctx, "op."+what, p)
}

// Session asks for one session; with no workspace it looks through all.
func (n *NATS) Session(ctx context.Context, id string, p api.Params) ([]byte, error) {
	if err := api.CheckID(api.ParamSession, id); err != nil {
		return nil, err
	}
	if w := p[api.ParamWorkspace]; len(w) == 1 {
		if err := api.CheckID(api.ParamWorkspace, w[0]); err != nil {
			return nil, err
		}
		return n.ask(ctx, "api."+bus.Escape(w[0])+".session."+bus.Escape(id), p)
	}
	body, err := n.ask(ctx, "op.sessions", api.Params{api.ParamSession: {id}, api.ParamLimit: {strconv.Itoa(api.MaxLimit)}})
	if err != nil {
		return nil, err
	}
	return only(id, body)
}

// only returns the one session of a list.
func only(id string, list []byte) ([]byte, error) {
	sessions, _, err := ParseSessions(list)
	if err != nil {
		return nil, err
	}
	switch len(sessions) {
	case 0:
		return nil, fmt.Errorf("read session %q: %w", id, bus.ErrNotFound)
	case 1:
		return sessions[0].JSON, nil
	}
	several := &store.AmbiguousError{Session: id}
	for _, s := range sessions {
		several.Workspaces = append(several.Workspaces, s.Workspace)
	}
	return nil, several
}

// Status asks for positions, lags and counters.
func (n *NATS) Status(ctx context.Context) ([]byte, error) {
	return n.ask(ctx, "op.status", nil)
}

// Outcome asks what became of the session's message with the event id.
func (n *NATS) Outcome(ctx context.Context, k bus.Key, eventID string) ([]byte, error) {
	return n.ask(ctx, "api."+bus.Escape(k.Workspace)+".outcome."+bus.Escape(k.Session), api.Params{api.ParamEventID: {eventID}})
}

// String returns the server's URL without credentials.
func (n *NATS) String() string { return n.server }

// Close closes the connection; what was published has been sent or is given up.
func (n *NATS) Close() error {
	n.nc.Close()
	return nil
}

// ask sends a request to prefix.subject and returns the reply.
func (n *NATS) ask(ctx context.Context, subject string, p api.Params) ([]byte, error) {
	subject = n.subjects.Prefix() + "." + subject
	ctx, cancel := context.WithTimeout(ctx, natsTimeout)
	defer cancel()
	m, err := n.nc.RequestWithContext(ctx, subject, p.AppendJSON(nil))
	switch {
	case errors.Is(err, nats.ErrNoResponders):
		return nil, unreachable("ask "+n.server, "is skald serve running on this server, with this prefix?", err)
	case err != nil:
		// A missing permission looks like a service that does not answer.
		return nil, unreachable("ask "+n.server+" on "+subject, "is skald serve running, and may this user ask?", natsconn.Explain(n.nc, err))
	}
	code := m.Header.Get(micro.ErrorCodeHeader)
	if code == "" {
		return m.Data, nil
	}
	status, err := strconv.Atoi(code)
	if f, ok := api.ParseFailure(status, m.Data); ok && err == nil {
		return nil, f
	}
	return nil, fmt.Errorf("ask %s on %s: error %s %s, which is no answer of skald's", n.server, subject, code, m.Header.Get(micro.ErrorHeader))
}
