package consumer

import (
	"errors"
	"fmt"

	"github.com/skaldbus/skald/bus"
)

// Errors with which Run ends, beside those of package bus that a [CursorError]
// carries and the handler's own. Each is wrapped with what it concerns; decide
// with errors.Is.
var (
	// ErrInUse: another process reads this durable, or has taken it over while
	// this one could not reach the server.
	ErrInUse = errors.New("durable is in use by another process")
	// ErrDurableDiffers: the server has a consumer of this name that was made for
	// other events, or not by this package.
	ErrDurableDiffers = errors.New("durable was made for something else")
	// ErrStreamReplaced: EVENTS is another stream than the one Run began with, so
	// its numbers mean something else.
	ErrStreamReplaced = errors.New("EVENTS was replaced")
	// ErrRunning: Run was called a second time, or a Follower is ranged over already.
	ErrRunning = errors.New("consumer has run already")
)

// CursorError says that reading can not go on from a cursor, and what EVENTS
// holds instead. It wraps [bus.ErrCursorAhead], [bus.ErrCursorGone] or
// [bus.ErrOtherEpoch].
type CursorError struct {
	Err    error
	Cursor bus.Cursor // from where reading was to go on
	Epoch  string     // EVENTS' epoch
	First  uint64     // the lowest number that EVENTS still holds; Last+1 if none
	Last   uint64     // the highest number that EVENTS has given
	Table  bool       // the table says so: Epoch, First and Last are its own
}

// Error names the cursor, what EVENTS holds, and the way on.
func (e *CursorError) Error() string {
	text := fmt.Sprintf("cursor %s: %v: EVENTS of epoch %s holds %d to %d", e.Cursor, e.Err, e.Epoch, e.First, e.Last)
	if e.Table {
		text = fmt.Sprintf("cursor %s: %v: the table of epoch %s holds %d to %d", e.Cursor, e.Err, e.Epoch, e.First, e.Last)
		if e.Err == bus.ErrCursorGone {
			return text + fmt.Sprintf("; go on from %d, knowing that what lies between is lost", e.First-1)
		}
	}
	switch e.Err {
	case bus.ErrCursorAhead:
		return text + "; it may have lost its end, which a materializer puts back, or the cursor is of another bus"
	case bus.ErrCursorGone:
		return text + fmt.Sprintf("; page the table from %d and go on from where that ends, or go on from %d", e.Cursor.Seq, e.First-1)
	case bus.ErrOtherEpoch:
		return text + "; page the table of this epoch, and give its cursor as the place to go on from"
	}
	return text
}

// Unwrap returns Err.
func (e *CursorError) Unwrap() error { return e.Err }

// final marks an error that ends Run; any other makes it try again.
type final struct{ err error }

func (f final) Error() string { return f.err.Error() }
func (f final) Unwrap() error { return f.err }

// Reasons to begin reading again behind the last number.
var (
	errLostDelivery = errors.New("a message was lost on its way from the server")
	errOtherStream  = errors.New("EVENTS is another stream")
	errLeaseLapsed  = errors.New("the lease was not renewed in time")
	errFarBehind    = errors.New("the table is the shorter way")
	errNoTable      = errors.New("the table can not be paged")
)
