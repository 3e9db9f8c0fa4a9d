package dirlock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// File is the name of the lock file in the directory. It stays there when the
// lock is released: to remove it would take it from under the next owner.
const File = "skald.lock"

// ErrHeld is what a [HeldError] is.
var ErrHeld = errors.New("directory is in use")

// errBusy is what lock returns if another open file has the lock.
var errBusy = errors.New("locked")

// HeldError says who has the directory.
type HeldError struct {
	Dir string // as it was asked for
	PID int    // the owner's process id; 0 if it has not written it yet
}

// Error names the directory and the owner.
func (e *HeldError) Error() string {
	if e.PID == 0 {
		return fmt.Sprintf("%v by another process: %s", ErrHeld, e.Dir)
	}
	return fmt.Sprintf("%v by process %d: %s", ErrHeld, e.PID, e.Dir)
}

// Is makes errors.Is(err, ErrHeld) true.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }

// Lock is a directory that this process owns until Release or its own end.
type Lock struct{ f *os.File }

// Acquire locks dir, which must exist, without waiting. It returns a *[HeldError]
// if another process, or another Lock of this one, has it.
func Acquire(dir string) (*Lock, error) {
	f, err := os.OpenFile(filepath.Join(dir, File), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("lock data directory: %w", err)
	}
	if err := lock(f); err != nil {
		if errors.Is(err, errBusy) {
			err = &HeldError{Dir: dir, PID: owner(f)}
		} else {
			err = fmt.Errorf("lock data directory %s: %w", dir, err)
		}
		return nil, errors.Join(err, f.Close())
	}
	if err := writeOwner(f); err != nil {
		return nil, errors.Join(fmt.Errorf("lock data directory %s: %w", dir, err), f.Close())
	}
	return &Lock{f: f}, nil
}

// Release gives the directory up. A second call returns os.ErrClosed.
func (l *Lock) Release() error {
	// An id that is left behind would be told to someone who meets the next
	// owner before that one has written its own.
	return errors.Join(l.f.Truncate(0), l.f.Close())
}

func writeOwner(f *os.File) error {
	if err := f.Truncate(0); err != nil {
		return err
	}
	_, err := f.WriteAt([]byte(strconv.Itoa(os.Getpid())+"\n"), 0)
	return err
}

// owner returns the process id that the lock's holder wrote, 0 if there is none.
func owner(f *os.File) int {
	b, err := io.ReadAll(io.NewSectionReader(f, 0, 32))
	if err != nil {
		return 0
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(b)))
	if err != nil || pid < 0 {
		return 0
	}
	return pid
}
