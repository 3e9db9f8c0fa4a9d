package consumer

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// CursorStore keeps one reader's cursor between two processes.
type CursorStore interface {
	// Load returns the cursor that was saved last, nil if none was.
	Load(ctx context.Context) (*bus.Cursor, error)
	// Save keeps the cursor. It is durable when Save returns nil.
	Save(ctx context.Context, at bus.Cursor) error
}

// FileCursor is a [CursorStore] in a file of one line, epoch:seq. A crash leaves
// the cursor before or the one after, never a part: each is written to a file
// beside it, synced, and renamed. One process writes a file at a time; nothing here
// keeps a second one away.
type FileCursor struct{ path string }

// NewFileCursor returns the store in the file at path, whose directory must exist.
// The file is made by the first Save.
func NewFileCursor(path string) *FileCursor { return &FileCursor{path: path} }

// Load reads the file. A file that holds no cursor is an error, not a beginning.
func (f *FileCursor) Load(context.Context) (*bus.Cursor, error) {
	b, err := os.ReadFile(f.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read cursor: %w", err)
	}
	at, err := bus.ParseCursor("cursor", strings.TrimSpace(string(b)))
	if err != nil {
		return nil, fmt.Errorf("read cursor from %s: %w", f.path, err)
	}
	return &at, nil
}

// Save replaces the file's cursor.
func (f *FileCursor) Save(_ context.Context, at bus.Cursor) error {
	dir := filepath.Dir(f.path)
	tmp, err := os.CreateTemp(dir, filepath.Base(f.path)+".*.tmp")
	if err != nil {
		return fmt.Errorf("write cursor: %w", err)
	}
	_, err = tmp.WriteString(at.String() + "\n")
	if err == nil {
		err = tmp.Sync()
	}
	err = errors.Join(err, tmp.Close())
	if err == nil {
		err = os.Rename(tmp.Name(), f.path)
	}
	if err != nil {
		return fmt.Errorf("write cursor: %w", errors.Join(err, os.Remove(tmp.Name())))
	}
	return syncDir(dir)
}

// syncDir makes a rename durable. Some systems can not sync a directory, and need
// not.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("open directory of the cursor: %w", err)
	}
	err = d.Sync()
	if errors.Is(err, errors.ErrUnsupported) || errors.Is(err, fs.ErrInvalid) || errors.Is(err, fs.ErrPermission) {
		err = nil
	}
	if err = errors.Join(err, d.Close()); err != nil {
		return fmt.Errorf("sync directory of the cursor: %w", err)
	}
	return nil
}
