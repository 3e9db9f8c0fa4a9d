//go:build !(darwin || dragonfly || freebsd || linux || netbsd || openbsd || windows)

package dirlock

import (
	"errors"
	"os"
)

func lock(*os.File) error { return errors.ErrUnsupported }
