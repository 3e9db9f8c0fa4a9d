//go:build !linux

package store_test

import "errors"

// mountSmall is for Linux only.
func mountSmall(string) (unmount func() error, err error) {
	return nil, errors.ErrUnsupported
}
