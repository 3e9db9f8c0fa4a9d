package natsd

import (
	"bytes"
	"fmt"
	"net"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
)

// InProcess connects without a socket. It reconnects for ever unless opts say
// otherwise; the caller closes the connection. With a configuration file that
// has users, opts must hold credentials like those of any other client.
func (s *Server) InProcess(opts ...nats.Option) (*nats.Conn, error) {
	all := append([]nats.Option{nats.InProcessServer(provider{s.ns}), nats.MaxReconnects(-1)}, opts...)
	nc, err := nats.Connect(s.url, all...)
	if err != nil {
		return nil, fmt.Errorf("connect in process: %w", err)
	}
	return nc, nil
}

// provider hands the client its end of a pipe.
type provider struct{ ns *server.Server }

func (p provider) InProcessConn() (net.Conn, error) {
	c, err := p.ns.InProcessConn()
	if err != nil {
		return nil, err
	}
	return &pipe{Conn: c}, nil
}

// pipe joins the client's CONNECT with the PING that the client always sends
// after it. A pipe has no buffer: the server would answer a refused CONNECT
// while the client is still writing PING, and each would wait for the other
// until the server's write deadline of 10 s, with the refusal lost.
type pipe struct {
	net.Conn
	held []byte // CONNECT until PING comes
	past bool   // both are written; what is written now is the client's own
}

func (p *pipe) Write(b []byte) (int, error) {
	switch {
	case p.past:
		return p.Conn.Write(b)
	case p.held == nil:
		// Without TLS the first write is CONNECT; with TLS it is a handshake.
		if p.past = !bytes.HasPrefix(b, []byte("CONNECT ")); p.past {
			return p.Conn.Write(b)
		}
		p.held = bytes.Clone(b)
		return len(b), nil
	default:
		p.past = true
		if _, err := p.Conn.Write(append(p.held, b...)); err != nil {
			return 0, err
		}
		return len(b), nil
	}
}
