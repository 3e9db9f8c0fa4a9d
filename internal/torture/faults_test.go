//go:build linux

package torture_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/internal/skaldtest"
)

// fault is one way to hurt the fleet. hurt returns what heals it, nil if nothing has
// to, and a word on what it did; it does nothing and says "" where it can not.
type fault struct {
	name   string
	weight int
	when   when
	hurt   func(f *fleet) (heal func(), what string)
}

// when says when a fault comes, beside by chance.
type when uint8

const (
	alone when = 1 << iota // never beside another wound, and only when all stores have caught up
	long                   // only where SKALD_TORTURE_FOR says how long
	sure                   // once in each fleet at least
)

func (x *fault) is(w when) bool { return x.when&w != 0 }

func faults() []fault {
	return []fault{
		{"kill a store", 10, 0, (*fleet).killStore},
		{"kill stores between append and commit", 4, sure, (*fleet).killUncommitted},
		{"stop a store", 4, 0, (*fleet).stopStore},
		{"freeze a store", 5, 0, (*fleet).freezeStore},
		{"kill the broker", 6, 0, (*fleet).killBroker},
		{"freeze the broker", 3, 0, (*fleet).freezeBroker},
		{"kill a worker", 8, 0, (*fleet).killWorker},
		{"freeze a worker", 2, 0, (*fleet).freezeWorker},
		{"cut connections", 10, 0, (*fleet).cutLinks},
		{"hold connections", 6, 0, (*fleet).holdLinks},
		{"delete consumers", 6, 0, (*fleet).deleteConsumers},
		{"repeat messages", 6, sure, (*fleet).repeatMessages},
		{"garbage", 6, 0, (*fleet).garbage},
		{"foreign messages", 3, sure, (*fleet).foreign},
		{"messages without identity", 5, sure, (*fleet).anonymous},
		{"forget a session", 2, 0, (*fleet).forgetSession},
		{"copy a store", 4, 0, (*fleet).copyStore},
		{"set a store back", 4, alone, (*fleet).restoreStore},
		{"lose a store", 2, alone, (*fleet).loseStore},
		{"copy JetStream", 3, alone | long, (*fleet).copyJetStream},
		{"set JetStream back", 4, alone | long, (*fleet).restoreJetStream},
		{"lose what nobody has read", 2, alone | long | sure, (*fleet).loseUnread},
		{"lose INGEST and repair", 1, alone | long, (*fleet).loseIngest},
		{"lose EVENTS and repair", 1, alone | long, (*fleet).loseEvents},
	}
}

// some returns a store that runs and is not frozen, nil if there is none.
func (f *fleet) some() *store {
	var up []*store
	for _, s := range f.stores {
		if s.running() && !s.frozen {
			up = append(up, s)
		}
	}
	if len(up) == 0 {
		return nil
	}
	return up[f.rng.IntN(len(up))]
}

// restart starts a process again.
func (f *fleet) restart(p *process) func() {
	return func() {
		if err := p.start(); err != nil {
			f.broken("start %s: %v", p.name, err)
		}
	}
}

func (f *fleet) killStore() (func(), string) {
	s := f.some()
	if s == nil {
		return nil, ""
	}
	s.kill()
	return f.restart(s.process), s.name
}

// killUncommitted keeps all stores from committing, and kills them when EVENTS has grown:
// it holds facts then that are in no table.
func (f *fleet) killUncommitted() (func(), string) {
	before, err := f.eventsEnd()
	if err != nil {
		return nil, ""
	}
	var held []*store
	for _, s := range f.stores {
		if !s.running() || s.frozen {
			continue
		}
		if f.ready(s) != nil {
			return nil, "" // it may not have its file yet
		}
		held = append(held, s)
		defer skaldtest.OtherProgram(f.t, s.data, "BEGIN IMMEDIATE").Close()
	}
	end := before
	for until := time.Now().Add(2 * time.Second); end == before; {
		if time.Now().After(until) {
			return nil, "" // nobody can append at present
		}
		if now, err := f.eventsEnd(); err == nil {
			end = now
		}
	}
	for _, s := range held {
		s.kill()
	}
	return func() {
		for _, s := range held {
			f.restart(s.process)()
		}
	}, fmt.Sprintf("%d stores, behind number %d", len(held), before)
}

// stopStore stops a store as an operator would.
func (f *fleet) stopStore() (func(), string) {
	s := f.some()
	if s == nil || f.ready(s) != nil {
		return nil, "" // or still on its way up, without a hand for the signal
	}
	s.cmd.Process.Signal(os.Interrupt) //nolint:errcheck // it may have ended
	select {
	case <-s.exited:
	case <-time.After(patience):
		f.broken("%s does not stop", s.name)
		s.kill()
	}
	if s.err != nil {
		f.broken("%s stopped with %v", s.name, s.err)
	}
	return f.restart(s.process), s.name
}

func (f *fleet) freezeStore() (func(), string) {
	s := f.some()
	if s == nil {
		return nil, ""
	}
	s.freeze()
	return s.thaw, s.name
}

func (f *fleet) killBroker() (func(), string) {
	if f.broker == nil || !f.broker.running() || f.broker.frozen {
		return nil, ""
	}
	f.broker.kill()
	return f.restart(f.broker), f.broker.name
}

func (f *fleet) freezeBroker() (func(), string) {
	if f.broker == nil || !f.broker.running() || f.broker.frozen {
		return nil, ""
	}
	f.broker.freeze()
	return f.broker.thaw, f.broker.name
}

func (f *fleet) killWorker() (func(), string) {
	w := f.workers[f.rng.IntN(len(f.workers))]
	if !w.running() || w.frozen {
		return nil, ""
	}
	w.kill()
	return func() {
		<-w.heard
		f.restart(w.process)()
	}, w.name
}

func (f *fleet) freezeWorker() (func(), string) {
	w := f.workers[f.rng.IntN(len(f.workers))]
	if !w.running() || w.frozen {
		return nil, ""
	}
	w.freeze()
	return w.thaw, w.name
}

// links returns some of the proxies.
func (f *fleet) links() []*skaldtest.Proxy {
	var out []*skaldtest.Proxy
	for _, p := range f.proxies {
		if f.rng.IntN(3) == 0 {
			out = append(out, p)
		}
	}
	return out
}

func (f *fleet) cutLinks() (func(), string) {
	links := f.links()
	for _, p := range links {
		p.Refuse(true)
	}
	return func() {
		for _, p := range links {
			p.Refuse(false)
		}
	}, fmt.Sprint(len(links))
}

func (f *fleet) holdLinks() (func(), string) {
	links := f.links()
	for _, p := range links {
		p.Hold(true)
	}
	return func() {
		for _, p := range links {
			p.Hold(false)
		}
	}, fmt.Sprint(len(links))
}

// streams names those of the bus.
func streams() []string { return []string{"SKALD_INGEST", "SKALD_EVENTS"} }

// deleteConsumers takes all consumers away from under those who read.
func (f *fleet) deleteConsumers() (func(), string) {
	n := 0
	for _, name := range streams() {
		st, err := f.js.Stream(f.ctx, name)
		if err != nil {
			return nil, ""
		}
		names := st.ConsumerNames(f.ctx)
		for c := range names.Name() {
			if err := f.js.DeleteConsumer(f.ctx, name, c); err != nil && !errors.Is(err, jetstream.ErrConsumerNotFound) {
				return nil, fmt.Sprint(n, " ", err)
			}
			n++
		}
	}
	return nil, fmt.Sprint(n)
}

// request publishes as a plain client, once.
func (f *fleet) request(m *nats.Msg) {
	f.nc.RequestMsg(m, 500*time.Millisecond) //nolint:errcheck // whether it comes is chance
}

// repeatMessages sends messages that INGEST holds once more, as they are.
func (f *fleet) repeatMessages() (func(), string) {
	st, err := f.js.Stream(f.ctx, streams()[0])
	if err != nil {
		return nil, ""
	}
	last := st.CachedInfo().State.LastSeq
	if last == 0 {
		return nil, ""
	}
	n := 0
	for range 1 + f.rng.IntN(100) {
		m, err := st.GetMsg(f.ctx, 1+f.rng.Uint64N(last))
		if err != nil || strings.HasSuffix(m.Subject, ".control") {
			continue
		}
		if m.Header.Get("Skald-Publisher") == "" && m.Header.Get("Skald-Event-Id") == "" && !strings.HasSuffix(m.Subject, ".projection") {
			continue // garbage: a repetition is another message
		}
		f.request(&nats.Msg{Subject: m.Subject, Header: m.Header, Data: m.Data})
		n++
	}
	return nil, fmt.Sprint(n)
}

// garbage sends what has to be rejected, into the sessions of the workers: cut off,
// corrupted and invented messages, under identities of their own.
func (f *fleet) garbage() (func(), string) {
	accounts := f.ledger.snapshot()
	keys := f.stableKeys()
	n := 1 + f.rng.IntN(20)
	for i := range n {
		s := accounts[keys[f.rng.IntN(len(keys))]].session
		var m *nats.Msg
		switch f.rng.IntN(6) {
		case 0:
			m = nats.NewMsg(s.subject("telepathy"))
			m.Data = []byte(`{}`)
		case 1:
			m = s.single(1 + f.rng.Uint64N(100))
			m.Header = nats.Header{"Skald-Event-Id": {fmt.Sprint("garbage-", i)}}
			m.Data = m.Data[:len(m.Data)-1-f.rng.IntN(len(m.Data)-1)] // cut off
		case 2:
			m = nats.NewMsg(s.subject("projection"))
			m.Data = newJournal(s).page(1, 3).Data
			at := strings.Index(string(m.Data), `"digest":"`) + 10
			at += strings.Index(string(m.Data[at:]), `"digest":"`) + 10
			m.Data[at] ^= 1 // of the first event
		case 3:
			m = nats.NewMsg("skald.in.=ZZ.x.error")
			m.Data = []byte(`{"message":"a token that is none"}`)
		case 4:
			m = nats.NewMsg(s.subject("error"))
			m.Header["Skald-Publisher"] = []string{"half an identity"}
			m.Data = []byte(`{"message":"bad header"}`)
		case 5:
			m = nats.NewMsg(s.subject("activity"))
			m.Data = []byte{0xff, 0, '{'}
		}
		f.request(m)
	}
	return nil, fmt.Sprint(n)
}

// foreign writes messages into EVENTS that no materializer wrote, between those of the
// stores. They take numbers, which an append has not expected.
func (f *fleet) foreign() (func(), string) {
	// Where EVENTS has lost its end they would take numbers that tables have, and then
	// serve stops and asks for a repair.
	if end, err := f.eventsEnd(); err != nil || end < f.lostTo {
		return nil, ""
	}
	n := 1 + f.rng.IntN(20)
	for range n {
		f.request(&nats.Msg{Subject: "skald.ev.ws=2E1.nobody.error", Data: []byte(`{"seq":1,"type":"error","data":{}}`)})
		time.Sleep(time.Duration(f.rng.IntN(30)) * time.Millisecond)
	}
	return nil, fmt.Sprint(n)
}

// anonymous sends messages without an identity, each once. Nothing but the store's
// position keeps them from being taken twice.
func (f *fleet) anonymous() (func(), string) {
	n := 1 + f.rng.IntN(30)
	for range n {
		text := f.ledger.newAnonymous()
		m := nats.NewMsg(session{Workspace: anonymousWorkspace, Name: anonymousName}.subject("error"))
		m.Data = []byte(`{"message":"` + text + `"}`)
		reply, err := f.nc.RequestMsg(m, 500*time.Millisecond)
		if err != nil {
			return nil, fmt.Sprint(n)
		}
		var ack struct{ Seq uint64 }
		if json.Unmarshal(reply.Data, &ack) == nil && ack.Seq > 0 {
			f.ledger.storedAnonymous(text)
		}
	}
	return nil, fmt.Sprint(n)
}

// forgetSession forgets one of the sessions that are there for it.
func (f *fleet) forgetSession() (func(), string) {
	for key, a := range f.ledger.snapshot() {
		if !strings.HasSuffix(a.Name, "-3") && !strings.HasSuffix(a.Name, "-4") || a.forgotten || a.applied < 50 || f.rng.IntN(2) == 0 {
			continue
		}
		f.ledger.forget(key)
		cmd := exec.CommandContext(f.ctx, f.bin, "forget", "--server", "nats://"+f.natsAt, "--workspace", a.Workspace, "--unseen", a.Name)
		out, err := cmd.CombinedOutput()
		return nil, fmt.Sprintf("%s: %v %s", key, err, strings.TrimSpace(string(out)))
	}
	return nil, ""
}
