package consumer_test

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/require"
)

// proxy stands between one client and the server, and plays a broken network.
type proxy struct {
	t    testing.TB
	ln   net.Listener
	addr string // of the server
	wg   sync.WaitGroup

	mu     sync.Mutex
	thaw   sync.Cond
	frozen bool
	conns  []net.Conn
}

// proxied connects to the server through a proxy of its own.
func (w *world) proxied() (*proxy, *nats.Conn, jetstream.JetStream) {
	w.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	p := &proxy{t: w.t, ln: ln, addr: w.server.Addr().String()}
	p.thaw.L = &p.mu
	p.wg.Go(p.accept)
	w.t.Cleanup(func() {
		_ = ln.Close()
		p.freeze(false)
		p.cut()
		p.wg.Wait()
	})
	nc, err := nats.Connect("nats://"+ln.Addr().String(), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond),
		nats.Timeout(500*time.Millisecond), nats.PingInterval(time.Second), nats.MaxPingsOutstanding(2))
	require.NoError(w.t, err)
	w.t.Cleanup(nc.Close)
	js, err := jetstream.New(nc)
	require.NoError(w.t, err)
	return p, nc, js
}

func (p *proxy) accept() {
	for {
		in, err := p.ln.Accept()
		if err != nil {
			return
		}
		out, err := net.Dial("tcp", p.addr)
		if err != nil {
			_ = in.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, in, out)
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(in, out) })
		p.wg.Go(func() { p.copy(out, in) })
	}
}

func (p *proxy) copy(to, from net.Conn) {
	defer to.Close()
	defer from.Close()
	buf := make([]byte, 4096)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.frozen {
			p.thaw.Wait()
		}
		p.mu.Unlock()
		if err != nil {
			return
		}
		if _, err := to.Write(buf[:n]); err != nil {
			return
		}
	}
}

// cut closes what is connected; a new connection works.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		_ = c.Close()
	}
	p.conns = nil
}

// freeze lets nothing through, and closes nothing: the other machine has vanished.
func (p *proxy) freeze(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.frozen = on
	p.thaw.Broadcast()
}
