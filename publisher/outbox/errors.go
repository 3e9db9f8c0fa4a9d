package outbox

import (
	"errors"
	"fmt"
)

var (
	// ErrClosed: the box was closed.
	ErrClosed = errors.New("outbox is closed")
	// ErrCorrupt is what a [CorruptError] is.
	ErrCorrupt = errors.New("outbox is damaged")
	// ErrInUse: another process has the directory, or another Box of this one.
	ErrInUse = errors.New("outbox is in use")
	// ErrStale: a batch that the entries build on was not kept. They have to be
	// made anew.
	ErrStale = errors.New("what came before was not kept")
)

// CorruptError says where the journal is damaged. What it held there was promised
// to be kept, so the box is not opened: move the directory away and find out what
// the sessions in it lack. It is ErrCorrupt.
type CorruptError struct {
	File   string
	Offset int64
	Why    string
}

// Error names the file and the offset.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("%v: %s at byte %d: %s", ErrCorrupt, e.File, e.Offset, e.Why)
}

// Is makes errors.Is(err, ErrCorrupt) true.
func (e *CorruptError) Is(target error) bool { return target == ErrCorrupt }
