package metrics

import "github.com/skaldbus/skald/bus"

// reasons are why a message may be rejected, the values of the label reason. The
// reasons of entries that no message is the cause of are not among them.
var reasons = []bus.Reason{
	bus.ReasonSubject, bus.ReasonClass, bus.ReasonHeader, bus.ReasonBody, bus.ReasonPage, bus.ReasonChain, bus.ReasonConflict,
	bus.ReasonAhead,
}
