package dirlock

import (
	"errors"
	"math"
	"os"

	"golang.org/x/sys/windows"
)

// lock takes one byte far behind the end of the file: on Windows a locked byte
// can not be read by others, and the process id is to be read.
func lock(f *os.File) error {
	at := windows.Overlapped{OffsetHigh: math.MaxInt32}
	err := windows.LockFileEx(windows.Handle(f.Fd()), windows.LOCKFILE_EXCLUSIVE_LOCK|windows.LOCKFILE_FAIL_IMMEDIATELY, 0, 1, 0, &at)
	if errors.Is(err, windows.ERROR_LOCK_VIOLATION) {
		return errBusy
	}
	return err
}
