package projection

import (
	"strconv"

	"github.com/skaldbus/skald/bus"
)

// agentInitialized gives a receipt of the runtime, if the observation names one:
// the identity as sent, with the event's ordinal and time beside its members.
func (t *step) agentInitialized(data []byte) bool {
	var runtime []byte
	ok := members(data, func(name string) *[]byte {
		if name == "runtime" {
			return &runtime
		}
		return nil
	})
	if !ok {
		return false
	}
	if isAbsent(runtime) {
		return true
	}
	// An identity that had the receipt's own members would make them ambiguous.
	var ordinal, observed []byte
	ok = members(runtime, func(name string) *[]byte {
		switch name {
		case "event_ordinal":
			return &ordinal
		case "observed_at_ms":
			return &observed
		}
		return nil
	})
	if !ok || ordinal != nil || observed != nil {
		return false
	}

	const open = `{"receipt":`
	d := make([]byte, 0, len(open)+len(runtime)+96)
	d = append(append(d, open...), runtime[:len(runtime)-1]...)
	if len(runtime) > len("{}") {
		d = append(d, ',')
	}
	d = append(d, `"event_ordinal":`...)
	d = strconv.AppendUint(d, t.event.Ordinal, 10)
	d = append(d, `,"observed_at_ms":`...)
	d = strconv.AppendInt(d, t.event.RecordedAt, 10)
	d = append(d, '}')
	t.View.Runtime = string(d[len(open):])
	t.Changed |= PartView
	t.fact(bus.TypeRuntimeResolved, append(d, '}'))
	return true
}
