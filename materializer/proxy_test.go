package materializer_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"

	"github.com/stretchr/testify/require"
)

// proxy stands between a node and the server, and can lose the server's answers.
type proxy struct {
	l      net.Listener
	to     string
	silent atomic.Bool // what the server sends is lost
	wg     sync.WaitGroup

	mu    sync.Mutex
	conns []net.Conn
}

func (w *world) proxy() *proxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(w.t, err)
	p := &proxy{l: l, to: w.server.Addr().String()}
	p.wg.Go(p.accept)
	w.t.Cleanup(func() {
		l.Close()
		p.cut()
		p.wg.Wait()
	})
	return p
}

func (p *proxy) url() string { return "nats://" + p.l.Addr().String() }

func (p *proxy) accept() {
	for {
		client, err := p.l.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.to)
		if err != nil {
			client.Close()
			continue
		}
		p.mu.Lock()
		p.conns = append(p.conns, client, server)
		p.mu.Unlock()
		p.wg.Go(func() { _, _ = io.Copy(server, client); server.Close() })
		p.wg.Go(func() {
			defer client.Close()
			buf := make([]byte, 32<<10)
			for {
				n, err := server.Read(buf)
				if err != nil {
					return
				}
				if p.silent.Load() {
					continue
				}
				if _, err := client.Write(buf[:n]); err != nil {
					return
				}
			}
		})
	}
}

// cut breaks all connections; new ones are let through, with answers.
func (p *proxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, c := range p.conns {
		c.Close()
	}
	p.conns = nil
	p.silent.Store(false)
}
