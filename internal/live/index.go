package live

import (
	"maps"
	"slices"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// index finds the readers that an event may concern, by the narrowest part of their
// filter. The zero value is empty and ready.
type index struct {
	n           int
	bySession   map[string]map[*sub]struct{} // with a session, in whatever workspace
	byWorkspace map[string]map[*sub]struct{} // with one workspace, or a bound of several
	all         map[*sub]struct{}
}

func (x *index) add(s *sub) {
	x.n++
	s.on = true
	switch {
	case s.q.Session != "":
		put(&x.bySession, s.q.Session, s)
	case s.q.Workspace != "":
		put(&x.byWorkspace, s.q.Workspace, s)
	case s.q.Within != nil:
		for _, w := range s.q.Within {
			put(&x.byWorkspace, w, s)
		}
	default:
		if x.all == nil {
			x.all = map[*sub]struct{}{}
		}
		x.all[s] = struct{}{}
	}
}

func put(m *map[string]map[*sub]struct{}, key string, s *sub) {
	if *m == nil {
		*m = map[string]map[*sub]struct{}{}
	}
	set := (*m)[key]
	if set == nil {
		set = map[*sub]struct{}{}
		(*m)[key] = set
	}
	set[s] = struct{}{}
}

// remove takes the reader out, if it is in.
func (x *index) remove(s *sub) {
	if !s.on {
		return
	}
	x.n--
	s.on = false
	delete(x.all, s)
	cut(x.bySession, s.q.Session, s)
	cut(x.byWorkspace, s.q.Workspace, s)
	for _, w := range s.q.Within {
		cut(x.byWorkspace, w, s)
	}
}

func cut(m map[string]map[*sub]struct{}, key string, s *sub) {
	delete(m[key], s)
	if len(m[key]) == 0 {
		delete(m, key)
	}
}

// match calls fn for each reader whose filter the event passes. fn may remove it.
func (x *index) match(e *bus.Event, fn func(*sub)) {
	for _, set := range []map[*sub]struct{}{x.bySession[e.Session], x.byWorkspace[e.Workspace], x.all} {
		for s := range set {
			if passes(&s.q, e) {
				fn(s)
			}
		}
	}
}

// each calls fn for each reader, which it may remove.
func (x *index) each(fn func(*sub)) {
	seen := maps.Clone(x.all)
	if seen == nil {
		seen = map[*sub]struct{}{}
	}
	for _, m := range []map[string]map[*sub]struct{}{x.bySession, x.byWorkspace} {
		for _, set := range m {
			maps.Copy(seen, set)
		}
	}
	for s := range seen {
		fn(s)
	}
}

// passes reports whether the event passes the query's filters.
func passes(q *store.PageQuery, e *bus.Event) bool {
	return (q.Session == "" || q.Session == e.Session) &&
		(q.Workspace == "" || q.Workspace == e.Workspace) &&
		(q.Type == "" || q.Type == e.Type) &&
		(q.Within == nil || slices.Contains(q.Within, e.Workspace))
}
