package auth

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// Names of the accounts that are no tenant's.
const (
	SystemAccount    = "SYS"
	BusAccount       = "SKALD"
	OperatorsAccount = "OPERATORS"
)

// APIPrefix is under what readers find the JetStream API of the bus' account: their
// own account answers to $JS.API.
const APIPrefix = "SKALD.API"

// inbox is where answers come in every account. No two tenants share one.
const inbox = "_INBOX.>"

// classes are those that a worker may publish: control is for operators.
var classes = []bus.Class{bus.ClassSession, bus.ClassActivity, bus.ClassError, bus.ClassProjection}

// user is somebody with a key.
type user struct {
	role, name string // name of its files
	dir        string // of its files, below the folder
	pub, sub   []string
	public     string // key
}

// port is what one account offers and another takes.
type port struct {
	kind     string // service or stream
	subject  string // in the bus' account
	to       string // in the importing account; "" is the same
	response string // response_type; "" is one answer
}

// account is a tenant's, or the operators'.
type account struct {
	name  string
	users []*user
	ports []port
}

// layout is everybody in a description.
type layout struct {
	administrators []*user
	bus            []*user
	accounts       []*account
}

// users returns all of them.
func (l *layout) users() []*user {
	all := append(append([]*user(nil), l.administrators...), l.bus...)
	for _, a := range l.accounts {
		all = append(all, a.users...)
	}
	return all
}

// layout says who may do what.
func (d *Description) layout() *layout {
	p := d.subjects.Prefix() + "."
	l := &layout{}
	for _, n := range d.Administrators {
		l.administrators = append(l.administrators, &user{role: "administrator", name: n, dir: "administrators"})
	}
	for _, n := range d.Materializers {
		l.bus = append(l.bus, &user{role: "materializer", name: n, dir: "materializers"})
	}
	for _, n := range d.Edges {
		l.bus = append(l.bus, &user{
			role: "edge", name: n, dir: "edges",
			// Answers to another account are published on the subject that the server
			// made for them.
			pub: []string{d.subjects.IngestFilter(), "_R_.>"},
			sub: []string{p + "edge.*.*.*", inbox},
		})
	}
	if len(d.Operators) > 0 {
		l.accounts = append(l.accounts, d.operators())
	}
	for i := range d.Workspaces {
		w := &d.Workspaces[i]
		for _, n := range w.Workers {
			l.accounts = append(l.accounts, d.worker(w, n))
		}
		for _, r := range w.Readers {
			l.accounts = append(l.accounts, d.reader(w, r))
		}
	}
	return l
}

func (d *Description) operators() *account {
	p := d.subjects.Prefix() + "."
	a := &account{name: OperatorsAccount, ports: []port{
		{kind: "service", subject: p + "edge.*.*.*", to: d.subjects.IngestFilter()},
		{kind: "service", subject: p + "api.>"},
		{kind: "service", subject: p + "op.>"},
		{kind: "stream", subject: p + "done.*.*"},
	}}
	for _, n := range d.Operators {
		a.users = append(a.users, &user{role: "operator", name: n, dir: "operators",
			pub: []string{d.subjects.IngestFilter(), p + "api.>", p + "op.>"},
			sub: []string{p + "done.*.*", inbox}})
	}
	return a
}

func (d *Description) worker(w *Workspace, name string) *account {
	p := d.subjects.Prefix() + "."
	u := &user{role: "worker", name: name, dir: "workspaces/" + w.token + "/workers", sub: []string{p + "done." + w.token + ".*", inbox}}
	a := &account{name: w.token + "=w-" + name, users: []*user{u}}
	for _, c := range classes {
		to := p + "in." + w.token + ".*." + string(c)
		a.ports = append(a.ports, port{kind: "service", subject: p + "edge." + w.token + ".*." + string(c), to: to})
		u.pub = append(u.pub, to)
	}
	for _, ask := range []string{"position", "outcome"} {
		subject := p + "api." + w.token + "." + ask + ".*"
		a.ports = append(a.ports, port{kind: "service", subject: subject})
		u.pub = append(u.pub, subject)
	}
	a.ports = append(a.ports, port{kind: "stream", subject: p + "done." + w.token + ".*"})
	return a
}

func (d *Description) reader(w *Workspace, r Reader) *account {
	p := d.subjects.Prefix() + ".api." + w.token + "."
	u := &user{role: "reader", name: r.Name, dir: "workspaces/" + w.token + "/readers", sub: []string{inbox}}
	a := &account{name: w.token + "=r-" + r.Name, users: []*user{u}}
	take := func(pt port) {
		a.ports = append(a.ports, pt)
		if pt.to == "" {
			pt.to = pt.subject
		}
		u.pub = append(u.pub, pt.to)
	}
	for _, ask := range []string{"events", "sessions", "session.*"} {
		take(port{kind: "service", subject: p + ask})
	}
	for _, durable := range r.Durables {
		at := d.subjects.EventsStream() + "." + w.Durable(durable)
		take(port{kind: "service", subject: "$JS.API.CONSUMER.INFO." + at, to: APIPrefix + ".CONSUMER.INFO." + at})
		take(port{kind: "service", subject: "$JS.API.CONSUMER.MSG.NEXT." + at, to: APIPrefix + ".CONSUMER.MSG.NEXT." + at, response: "stream"})
		take(port{kind: "service", subject: "$JS.ACK." + at + ".>"})
	}
	return a
}

// render writes the configuration: accounts, their users, what each exports and
// imports. It is the same text for the same description and keys.
func (l *layout) render() []byte {
	b := &bytes.Buffer{}
	fmt.Fprintf(b, "# Written by skald auth from a description; change that, not this.\n\nsystem_account: %s\naccounts {\n", quoted(SystemAccount))
	fmt.Fprintf(b, "  %s {\n    users: [\n", quoted(SystemAccount))
	writeUsers(b, l.administrators)
	fmt.Fprintf(b, "    ]\n  }\n  %s {\n    jetstream: enabled\n    users: [\n", quoted(BusAccount))
	writeUsers(b, l.bus)
	b.WriteString("    ]\n    exports: [\n")
	// One subject is offered once, with the accounts that may take it.
	var offered []port
	takers := map[string][]string{}
	for _, a := range l.accounts {
		for _, p := range a.ports {
			if takers[p.subject] == nil {
				offered = append(offered, p)
			}
			takers[p.subject] = append(takers[p.subject], quoted(a.name))
		}
	}
	for _, p := range offered {
		response := ""
		if p.response != "" {
			response = ", response_type: " + p.response
		}
		fmt.Fprintf(b, "      { %s: %s%s, accounts: [%s] }\n", p.kind, quoted(p.subject), response, strings.Join(takers[p.subject], ", "))
	}
	b.WriteString("    ]\n  }\n")
	for _, a := range l.accounts {
		fmt.Fprintf(b, "  %s {\n    users: [\n", quoted(a.name))
		writeUsers(b, a.users)
		b.WriteString("    ]\n    imports: [\n")
		for _, p := range a.ports {
			to := ""
			if p.to != "" {
				to = ", to: " + quoted(p.to)
			}
			fmt.Fprintf(b, "      { %s: { account: %s, subject: %s }%s }\n", p.kind, quoted(BusAccount), quoted(p.subject), to)
		}
		b.WriteString("    ]\n  }\n")
	}
	b.WriteString("}\n")
	return b.Bytes()
}

func writeUsers(b *bytes.Buffer, users []*user) {
	for _, u := range users {
		permissions := ""
		if u.pub != nil {
			permissions = fmt.Sprintf(", permissions: {\n        publish: { allow: %s }\n        subscribe: { allow: %s }\n      }", list(u.pub), list(u.sub))
		}
		fmt.Fprintf(b, "      # %s %s\n      { nkey: %s%s }\n", u.role, u.name, u.public, permissions)
	}
}

func list(subjects []string) string {
	out := make([]string, len(subjects))
	for i, s := range subjects {
		out[i] = quoted(s)
	}
	return "[" + strings.Join(out, ", ") + "]"
}

// quoted writes a string that needs no escapes: tokens, wildcards and dots.
func quoted(s string) string {
	b := &bytes.Buffer{}
	enc := json.NewEncoder(b)
	enc.SetEscapeHTML(false) // > stands in subjects
	_ = enc.Encode(s)        // a string never fails
	return strings.TrimSpace(b.String())
}
