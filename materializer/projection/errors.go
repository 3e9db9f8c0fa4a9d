package projection

import (
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// ErrEncoding: a stored state is damaged, or was written by a newer version.
var ErrEncoding = errors.New("state is not in a form that this version reads")

// chainError says that a page does not agree with the chain.
func chainError(field, rule string, args ...any) error {
	return &bus.InvalidError{Reason: bus.ReasonChain, Field: field, Rule: fmt.Sprintf(rule, args...)}
}

// reasonOf returns the reject code of an error that bus or chainError made.
func reasonOf(err error) bus.Reason {
	var invalid *bus.InvalidError
	if errors.As(err, &invalid) && invalid.Reason != "" {
		return invalid.Reason
	}
	return bus.ReasonBody
}
