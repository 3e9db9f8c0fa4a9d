//go:build unix

package outbox

import (
	"errors"
	"os"
)

// syncDir makes names in the directory that are new or gone last.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}
