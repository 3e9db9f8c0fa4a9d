package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/skaldbus/skald/bus"
)

const (
	// maxName bounds a name in bytes; a name is one token and part of a file's name.
	maxName = 64
	// maxToken bounds a workspace's token in bytes: it is part of names of files,
	// accounts and JetStream consumers.
	maxToken = 128
)

// ErrDescription: the description can not be read, or breaks a rule.
var ErrDescription = errors.New("description")

// Description says who uses a bus. It is a JSON object; unknown members are refused.
type Description struct {
	// Servers are the addresses that go into contexts, and CA the file that vouches
	// for their certificates, if it is not one that the system knows.
	Servers []string `json:"servers"`
	CA      string   `json:"ca,omitempty"`
	// Prefix is the bus's subject prefix. Defaults to skald.
	Prefix string `json:"prefix,omitempty"`

	Administrators []string    `json:"administrators,omitempty"`
	Materializers  []string    `json:"materializers"`
	Edges          []string    `json:"edges"`
	Operators      []string    `json:"operators,omitempty"`
	Workspaces     []Workspace `json:"workspaces"`

	subjects bus.Subjects
}

// Workspace is a tenant.
type Workspace struct {
	ID      string   `json:"id"`
	Workers []string `json:"workers,omitempty"`
	Readers []Reader `json:"readers,omitempty"`

	token string
}

// Reader is a user who reads a workspace. Each of its durables is a JetStream consumer
// that [Ensure] makes and only this reader can pull from.
type Reader struct {
	Name     string   `json:"name"`
	Durables []string `json:"durables,omitempty"`
}

// Parse reads a description. The error wraps ErrDescription and names member and rule.
func Parse(text []byte) (*Description, error) {
	d := &Description{}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.DisallowUnknownFields()
	if err := dec.Decode(d); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDescription, err)
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, fmt.Errorf("%w: must be one JSON object", ErrDescription)
	}
	if err := d.check(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrDescription, err)
	}
	return d, nil
}

// check completes what is derived from ids.
func (d *Description) check() (err error) {
	if d.subjects, err = bus.NewSubjects(d.Prefix); err != nil {
		return err
	}
	if len(d.Servers) == 0 {
		return invalid("servers", "must name at least one address")
	}
	for _, s := range d.Servers {
		if s == "" || strings.ContainsAny(s, ", \t\r\n") {
			return invalid("servers", "must each be one address, not %q", s)
		}
	}
	for _, list := range []struct {
		field string
		names []string
		least int
	}{
		{"administrators", d.Administrators, 0}, {"materializers", d.Materializers, 1}, {"edges", d.Edges, 1}, {"operators", d.Operators, 0},
	} {
		if len(list.names) < list.least {
			return invalid(list.field, "must name at least one")
		}
		if err := checkNames(list.field, list.names); err != nil {
			return err
		}
	}
	seen := map[string]bool{}
	for i := range d.Workspaces {
		w := &d.Workspaces[i]
		if err := w.check(); err != nil {
			return fmt.Errorf("workspace %q: %w", w.ID, err)
		}
		if seen[w.ID] {
			return invalid("workspaces", "names %q twice", w.ID)
		}
		seen[w.ID] = true
	}
	return nil
}

func (w *Workspace) check() error {
	if err := bus.CheckID("id", w.ID); err != nil {
		return err
	}
	if w.token = bus.Escape(w.ID); len(w.token) > maxToken {
		return invalid("id", "is %d bytes long where it is escaped, at most %d are allowed for a tenant", len(w.token), maxToken)
	}
	if err := checkNames("workers", w.Workers); err != nil {
		return err
	}
	var readers, durables []string
	for _, r := range w.Readers {
		readers = append(readers, r.Name)
		durables = append(durables, r.Durables...)
	}
	if err := checkNames("readers", readers); err != nil {
		return err
	}
	return checkNames("durables", durables)
}

// checkNames refuses names that are no plain token, or not unique regardless of case:
// some file systems keep none.
func checkNames(field string, names []string) error {
	seen := map[string]bool{}
	for _, n := range names {
		if n == "" || len(n) > maxName || n != bus.Escape(n) || n != strings.ToLower(n) {
			return invalid(field, "must each be 1 to %d characters of a-z 0-9 _ -, not %q", maxName, n)
		}
		if seen[n] {
			return invalid(field, "names %q twice", n)
		}
		seen[n] = true
	}
	return nil
}

// Durable returns the name of the JetStream consumer behind a reader's durable. No
// workspace's token ends like its prefix, since = is followed there by two digits, so
// no two workspaces share a name.
func (w *Workspace) Durable(name string) string { return w.token + "=r-" + name }

func invalid(field, rule string, args ...any) error {
	return &bus.InvalidError{Field: field, Rule: fmt.Sprintf(rule, args...)}
}
