package store_test

import "golang.org/x/sys/unix"

// mountSmall mounts a file system of 4 MiB over dir.
func mountSmall(dir string) (unmount func() error, err error) {
	if err := unix.Mount("tmpfs", dir, "tmpfs", 0, "size=4m,mode=755"); err != nil {
		return nil, err
	}
	return func() error { return unix.Unmount(dir, unix.MNT_DETACH) }, nil
}
