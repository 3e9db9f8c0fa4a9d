package api

import (
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// Names of the parameters, the same at every door.
const (
	ParamAfterSeq     = "after_seq"     // a cursor: seq or epoch:seq
	ParamLimit        = "limit"         // rows of a page
	ParamSession      = "session_id"    // exact id, not a token
	ParamWorkspace    = "workspace_id"  // exact id, not a token
	ParamType         = "type"          // exact type of events
	ParamAfter        = "after"         // where a list of sessions goes on
	ParamEventID      = "event_id"      // for the outcome of a message with an id
	ParamPublisher    = "publisher"     // for the outcome of a publisher's count
	ParamPublisherSeq = "publisher_seq" // the count
)

const (
	// DefaultLimit is a page's limit where none is given.
	DefaultLimit = 200
	// MaxLimit is the largest limit; a larger one counts as this.
	MaxLimit = 1000
	// MaxType is the longest type that may be asked for, in bytes.
	MaxType = 64
)

// Params are a query's parameters as they came in: by name, each with the values
// it was given. Methods of [API] do the checking.
type Params map[string][]string

// ParameterError says which parameter of a query breaks which rule.
type ParameterError struct {
	Parameter string
	Rule      string
}

// Error returns "parameter: rule".
func (e *ParameterError) Error() string { return e.Parameter + ": " + e.Rule }

// maxEcho bounds how much of a caller's own text an error gives back, in bytes.
const maxEcho = 64

func refuse(parameter, rule string, args ...any) error {
	return &ParameterError{Parameter: clip(parameter), Rule: fmt.Sprintf(rule, args...)}
}

func clip(s string) string {
	if len(s) > maxEcho {
		s = s[:maxEcho] + "…"
	}
	return strings.ToValidUTF8(s, "\uFFFD")
}

// ParseQuery reads the query of a URL, without its question mark. A malformed
// escape or separator is a *[ParameterError]: what it hides would be ignored.
func ParseQuery(raw string) (Params, error) {
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, refuse("query", "is malformed: %s", clip(err.Error()))
	}
	return Params(values), nil
}

// ParseJSON reads the members of a request body, which is empty or one JSON
// object. Numbers may be written as numbers or strings, ids only as strings;
// null is no value, since it would silently widen a filter.
func ParseJSON(body []byte) (Params, error) {
	p := Params{}
	if len(body) == 0 {
		return p, nil
	}
	compact, err := bus.Compact(body)
	if err != nil {
		return nil, refuse("request", "%v", err)
	}
	isObject, err := bus.Members(compact, func(name string, v []byte) error {
		switch {
		case bus.IsString(v):
			p[name] = append(p[name], bus.Unquote(v))
		case isNumber(v) && numeric(name):
			p[name] = append(p[name], string(v))
		case numeric(name):
			return refuse(name, "must be a number or a string")
		default:
			return refuse(name, "must be a string")
		}
		return nil
	})
	if err == nil && !isObject {
		err = refuse("request", "must be a JSON object or empty")
	}
	return p, err
}

func numeric(name string) bool {
	switch name {
	case ParamAfterSeq, ParamLimit, ParamAfter, ParamPublisherSeq:
		return true
	}
	return false
}

func isNumber(v []byte) bool { return v[0] == '-' || '0' <= v[0] && v[0] <= '9' }

// Fix sets a parameter to the value that a request's path or subject names. A
// parameter given beside it must be the same.
func (p Params) Fix(name, value string) error {
	for _, given := range p[name] {
		if given != value {
			return refuse(name, "is fixed to %q by the address of this request", value)
		}
	}
	p[name] = []string{value}
	return nil
}

// AppendJSON appends the parameters as the JSON object that ParseJSON reads, in
// the order of their names.
func (p Params) AppendJSON(dst []byte) []byte {
	dst = append(dst, '{')
	first := true
	for _, name := range slices.Sorted(maps.Keys(p)) {
		for _, v := range p[name] {
			if !first {
				dst = append(dst, ',')
			}
			first = false
			dst = bus.AppendQuoted(dst, name)
			dst = append(dst, ':')
			dst = bus.AppendQuoted(dst, v)
		}
	}
	return append(dst, '}')
}

// only refuses parameters that are not in names.
func (p Params) only(names ...string) error {
	unknown := make([]string, 0, len(p))
	for name := range p {
		if !slices.Contains(names, name) {
			unknown = append(unknown, name)
		}
	}
	if len(unknown) == 0 {
		return nil
	}
	// The same query gets the same answer, whatever the map's order.
	slices.Sort(unknown)
	if len(names) == 0 {
		return refuse(unknown[0], "is not known here, no parameter is")
	}
	return refuse(unknown[0], "is not known here, the parameters are %v", names)
}

// one returns the parameter's value, and whether it was given.
func (p Params) one(name string) (value string, given bool, err error) {
	v := p[name]
	if len(v) > 1 {
		return "", true, refuse(name, "is given %d times", len(v))
	}
	if len(v) == 0 {
		return "", false, nil
	}
	return v[0], true, nil
}

// id returns an id that filters, "" if it was not given. An empty one is refused:
// it would widen the filter to everything.
func (p Params) id(name string) (string, error) {
	v, given, err := p.one(name)
	if err != nil || !given {
		return "", err
	}
	return v, CheckID(name, v)
}

// CheckID reports whether id is a valid id of a workspace or session, as a
// *[ParameterError] that names the parameter.
func CheckID(name, id string) error {
	return parameter(name, bus.CheckID(name, id))
}

// cursor returns the cursor to go on from, nil if it is absent or empty.
func (p Params) cursor(name string) (*bus.Cursor, error) {
	v, _, err := p.one(name)
	if err != nil || v == "" {
		return nil, err
	}
	c, err := bus.ParseCursor(name, v)
	if err != nil {
		return nil, parameter(name, err)
	}
	return &c, nil
}

// limit returns a page's limit. Any number of digits is a number: what lies
// beyond MaxLimit is MaxLimit, beyond int64 too.
func (p Params) limit() (int, error) {
	v, _, err := p.one(ParamLimit)
	if err != nil {
		return 0, err
	}
	if v == "" {
		return DefaultLimit, nil
	}
	n := 0
	for i := 0; i < len(v); i++ {
		if v[i] < '0' || v[i] > '9' {
			return 0, refuse(ParamLimit, "must be a number from 1, of which at most %d count", MaxLimit)
		}
		n = min(n*10+int(v[i]-'0'), MaxLimit)
	}
	if n == 0 {
		return 0, refuse(ParamLimit, "must be at least 1")
	}
	return n, nil
}

// place returns where a list goes on, 0 if it is absent or empty.
func (p Params) place() (int64, error) {
	v, _, err := p.one(ParamAfter)
	if err != nil || v == "" {
		return 0, err
	}
	for i := 0; i < len(v); i++ {
		if v[i] < '0' || v[i] > '9' {
			return 0, refuse(ParamAfter, "must be a number that an earlier answer gave as next_after")
		}
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, refuse(ParamAfter, "must be a number that an earlier answer gave as next_after")
	}
	return n, nil
}

// eventType returns the type that filters, "" if it was not given.
func (p Params) eventType() (string, error) {
	v, given, err := p.one(ParamType)
	if err != nil || !given {
		return "", err
	}
	if len(v) < 1 || len(v) > MaxType {
		return "", refuse(ParamType, "must be 1 to %d bytes long, not %d", MaxType, len(v))
	}
	return v, CheckID(ParamType, v)
}
