package skaldtest

import (
	"net"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Proxy stands between a client and a server, and plays a broken network. It passes
// all bytes on until it is told otherwise. Its methods may be called at any time by
// anyone.
type Proxy struct {
	listener net.Listener
	target   string
	wg       sync.WaitGroup

	mu     sync.Mutex
	moved  *sync.Cond
	held   bool
	refuse bool
	ended  bool
	conns  map[net.Conn]bool
}

// NewProxy listens on a free port of loopback, and connects to target, host and port,
// for each connection that it gets. It ends with the test.
func NewProxy(t testing.TB, target string) *Proxy {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &Proxy{listener: l, target: target, conns: map[net.Conn]bool{}}
	p.moved = sync.NewCond(&p.mu)
	p.wg.Go(p.accept)
	t.Cleanup(p.end)
	return p
}

// Addr is where it listens, host and port.
func (p *Proxy) Addr() string { return p.listener.Addr().String() }

// URL is Addr for a NATS client.
func (p *Proxy) URL() string { return "nats://" + p.Addr() }

// Cut closes what is connected. A new connection works.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.cutLocked()
}

func (p *Proxy) cutLocked() {
	for c := range p.conns {
		_ = c.Close()
	}
}

// Refuse closes what is connected and every new connection, or lets them work again.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
	if on {
		p.cutLocked()
	}
}

// Hold lets nothing through and closes nothing, as if the other machine had vanished,
// or lets what was held go on.
func (p *Proxy) Hold(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.held = on
	p.moved.Broadcast()
}

func (p *Proxy) end() {
	p.mu.Lock()
	p.ended = true
	p.moved.Broadcast()
	p.cutLocked()
	p.mu.Unlock()
	_ = p.listener.Close()
	p.wg.Wait()
}

func (p *Proxy) accept() {
	for {
		in, err := p.listener.Accept()
		if err != nil {
			return
		}
		out, err := net.DialTimeout("tcp", p.target, time.Second)
		if err != nil {
			_ = in.Close()
			continue
		}
		if !p.add(in, out) {
			_ = in.Close()
			_ = out.Close()
			continue
		}
		p.wg.Go(func() { p.pass(in, out) })
		p.wg.Go(func() { p.pass(out, in) })
	}
}

// add takes a pair of connections on, unless they are refused.
func (p *Proxy) add(pair ...net.Conn) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.refuse || p.ended {
		return false
	}
	for _, c := range pair {
		p.conns[c] = true
	}
	return true
}

// pass copies until one side ends.
func (p *Proxy) pass(from, to net.Conn) {
	defer func() {
		_ = from.Close()
		_ = to.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.conns, from)
		delete(p.conns, to)
	}()
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		p.mu.Lock()
		for p.held && !p.ended {
			p.moved.Wait()
		}
		p.mu.Unlock()
		if n > 0 {
			if _, err := to.Write(buf[:n]); err != nil {
				return
			}
		}
		if err != nil {
			return
		}
	}
}
