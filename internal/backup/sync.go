package backup

import (
	"errors"
	"os"
	"runtime"
)

// syncPath makes a file's bytes, or a directory's entries, durable.
func syncPath(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	err = f.Sync()
	if runtime.GOOS == "windows" {
		err = nil // neither a directory nor a file that was opened for reading can be synced there
	}
	return errors.Join(err, f.Close())
}
