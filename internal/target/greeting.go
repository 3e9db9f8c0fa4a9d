package target

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"

	"github.com/nats-io/nats.go"
)

// Errors of an address that belongs to another protocol.
var (
	// ErrNotNATS: something accepts connections there, but it does not greet.
	ErrNotNATS = errors.New("nothing greets there as a NATS server does")
	// ErrNotHTTP: a NATS server has greeted where HTTP was to be spoken.
	ErrNotHTTP = errors.New("a NATS server listens there, no HTTP gateway: its address goes with --server")
)

// ExplainConnect makes an error of natsconn.Connect that can only mean another
// protocol, or a server that hangs, one that is ErrNotNATS as well. Any other, nil
// too, stays what it is.
func ExplainConnect(err error) error {
	// A NATS server speaks first, at once. One who waits for a request is none.
	op, ok := errors.AsType[*net.OpError](err)
	silent := ok && op.Op == "read" && op.Timeout()
	if silent || errors.Is(err, nats.ErrNoInfoReceived) {
		return fmt.Errorf("%w: %w", ErrNotNATS, err)
	}
	return err
}

// greeting is how a NATS server begins, before it is asked anything.
var greeting = []byte("INFO ")

// listening returns a transport whose connections end with ErrNotHTTP when a NATS
// server is at the other end. Without it the error would hold the server's whole
// greeting, or the HTTP client would write that to the log.
func listening() *http.Transport {
	d := &net.Dialer{}
	t := http.DefaultTransport.(*http.Transport).Clone()
	t.DialContext = func(ctx context.Context, network, address string) (net.Conn, error) {
		c, err := d.DialContext(ctx, network, address)
		if err != nil {
			return nil, err
		}
		return &firstRead{Conn: c}, nil
	}
	return t
}

// firstRead looks at the first bytes of a connection.
type firstRead struct {
	net.Conn
	done bool // belongs to the one goroutine that reads
}

func (f *firstRead) Read(p []byte) (int, error) {
	n, err := f.Conn.Read(p)
	if n > 0 && !f.done {
		f.done = true
		if bytes.HasPrefix(p[:n], greeting) {
			return 0, ErrNotHTTP
		}
	}
	return n, err
}
