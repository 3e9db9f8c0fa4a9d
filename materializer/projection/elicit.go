package projection

import (
	"slices"

	"github.com/skaldbus/skald/bus"
)

// elicitationRequested opens a question. The same question again is no event, a
// changed one under the same id is.
func (t *step) elicitationRequested(data []byte) bool {
	var request []byte
	ok := members(data, func(name string) *[]byte {
		if name == "request" {
			return &request
		}
		return nil
	})
	if !ok {
		return false
	}
	var id, message, fields []byte
	ok = members(request, func(name string) *[]byte {
		switch name {
		case "id":
			return &id
		case "message":
			return &message
		case "fields":
			return &fields
		}
		return nil
	})
	if !ok || !isID(id) || !bus.IsString(message) || !isArray(fields) {
		return false
	}
	v := &t.View
	text := decoded(id)
	at, size := -1, len(request)
	for i := range v.Elicitations {
		if at < 0 && v.Elicitations[i].ID.is(text) {
			at = i
			continue
		}
		size += len(v.Elicitations[i].Request)
	}
	if size > MaxElicitationBytes || at < 0 && len(v.Elicitations) >= MaxElicitations {
		return false
	}
	asked := at >= 0 && v.Elicitations[at].Request == string(request)
	if at >= 0 {
		v.Elicitations = slices.Delete(v.Elicitations, at, at+1)
	}
	v.Elicitations = append(v.Elicitations, Elicitation{ID: newID(id), Request: string(request)})
	t.Changed |= PartView
	if asked {
		return true
	}
	d := make([]byte, 0, len(request)+64)
	d = append(append(append(d, `{"request":`...), request...), ',')
	t.fact(bus.TypeInputRequired, append(appendTurnID(d, v.turnID()), '}'))
	return true
}

// elicitationResolved closes a question; one that is not open is no event.
func (t *step) elicitationResolved(data []byte) bool {
	var id, action []byte
	ok := members(data, func(name string) *[]byte {
		switch name {
		case "elicitation_id":
			return &id
		case "action":
			return &action
		}
		return nil
	})
	if !ok || !isID(id) || !bus.IsString(action) {
		return false
	}
	v, text := &t.View, decoded(id)
	at := slices.IndexFunc(v.Elicitations, func(e Elicitation) bool { return e.ID.is(text) })
	if at < 0 {
		return true
	}
	t.inputResolved(v.Elicitations[at].ID, action)
	v.Elicitations = slices.Delete(v.Elicitations, at, at+1)
	t.Changed |= PartView
	return true
}

// clearElicitations closes every question that is open.
func (t *step) clearElicitations() {
	v := &t.View
	if len(v.Elicitations) == 0 {
		return
	}
	t.r.Facts = slices.Grow(t.r.Facts, len(v.Elicitations))
	for i := range v.Elicitations {
		t.inputResolved(v.Elicitations[i].ID, []byte(`"cleared"`))
	}
	v.Elicitations = nil
	t.Changed |= PartView
}

// inputResolved adds the fact that a question is closed; action is a token.
func (t *step) inputResolved(id ID, action []byte) {
	d := make([]byte, 0, len(id.token)+len(action)+80)
	d = append(append(append(d, `{"elicitation_id":`...), id.token...), ',')
	d = append(appendTurnID(d, t.View.turnID()), `,"action":`...)
	t.fact(bus.TypeInputResolved, append(append(d, action...), '}'))
}

// turnID returns the ordinal that names the active turn to readers, 0 if none is.
func (v *View) turnID() uint64 {
	if v.ActiveTurn == nil {
		return 0
	}
	return v.ActiveTurn.Accepted
}
