package store

import (
	"slices"

	"github.com/skaldbus/skald/bus"
)

// within applies a bound of workspaces to a query's workspace. It returns the one
// workspace that is left to look in, "" if there are more; then scope is the bound as
// a JSON array, or nil if there is none. ok is false if nothing can match.
func within(bound []string, workspace string) (one string, scope any, ok bool) {
	switch {
	case bound == nil:
		return workspace, nil, true
	case workspace != "":
		return workspace, nil, slices.Contains(bound, workspace)
	case len(bound) < 2:
		// One workspace has texts of its own, which need no sorting for a session.
		return append(slices.Clone(bound), "")[0], nil, len(bound) == 1
	}
	list := []byte{'['}
	for i, w := range bound {
		if i > 0 {
			list = append(list, ',')
		}
		list = bus.AppendQuoted(list, w)
	}
	return "", string(append(list, ']')), true
}
