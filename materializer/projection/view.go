package projection

import (
	"encoding/json"
	"fmt"
	"slices"

	"github.com/skaldbus/skald/bus"
)

// viewForm is the version of the view's JSON form.
const viewForm = 1

// storedView is the view as it is stored.
type storedView struct {
	Form int `json:"form"`
	View
}

// AppendView appends the view's encoding, JSON text. The pieces of JSON that the
// view holds are strings in it: an encoder leaves the contents of a string as they
// are, while it would rewrite nested JSON. Equal views have equal encodings.
func (s *State) AppendView(dst []byte) ([]byte, error) {
	b, err := json.Marshal(storedView{Form: viewForm, View: s.View})
	if err != nil {
		return dst, fmt.Errorf("encode view: %w", err)
	}
	return append(dst, b...), nil
}

// decode reads the view's encoding.
func (v *View) decode(b []byte) error {
	var in storedView
	if err := json.Unmarshal(b, &in); err != nil {
		return fmt.Errorf("%w: %w", ErrEncoding, err)
	}
	if in.Form != viewForm {
		return fmt.Errorf("%w: form %d, this version reads %d", ErrEncoding, in.Form, viewForm)
	}
	if err := in.View.check(); err != nil {
		return err
	}
	*v = in.View
	return nil
}

// check makes sure that what the view holds as tokens and objects is that, since
// comparing and rendering rely on it.
func (v *View) check() error {
	ok := true
	for _, t := range []string{v.Title, v.ProjectedTitle, v.State, v.LastError} {
		ok = ok && (t == "" || isCompact(t, '"'))
	}
	for _, o := range []string{v.LastOutcome, v.Activity, v.Runtime} {
		ok = ok && (o == "" || isCompact(o, '{'))
	}
	if v.ActiveTurn != nil {
		ok = ok && v.ActiveTurn.CommandID != ID{}
	}
	for i := range v.Elicitations {
		ok = ok && v.Elicitations[i].ID != ID{} && isCompact(v.Elicitations[i].Request, '{')
	}
	for i := range v.Queue {
		kind := v.Queue[i].Kind
		ok = ok && v.Queue[i].CommandID != ID{} && (kind == KindPrompt || kind == KindSetConfig)
	}
	ok = ok && !slices.Contains(v.Started, ID{})
	switch v.Execution.Kind {
	case "", ExecutionIdle, ExecutionRunning, ExecutionClosing, ExecutionClosed:
	default:
		ok = false
	}
	if !ok {
		return fmt.Errorf("%w: a part of the view is not the JSON that it should be", ErrEncoding)
	}
	return nil
}

// isCompact reports whether v is one compact JSON value that begins with first.
func isCompact(v string, first byte) bool {
	b, err := bus.Compact([]byte(v))
	return err == nil && len(b) == len(v) && b[0] == first
}
