package store

import "golang.org/x/sys/unix"

// checkFilesystem returns ErrNetworkFile if dir lies on a network file system. A
// directory that can not be asked is left to the opening of the file, which knows
// the better error.
func checkFilesystem(dir string) error {
	var st unix.Statfs_t
	if unix.Statfs(dir, &st) != nil {
		return nil
	}
	return refuseNetwork(dir, uint32(st.Type))
}
