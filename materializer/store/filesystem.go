package store

import "fmt"

// Network file systems by the number that Linux gives them (linux/magic.h). The
// log's index is memory shared between processes, which they do not share.
const (
	fsNFS  = 0x6969
	fsSMB  = 0x517B
	fsSMB2 = 0xFE534D42
	fsCIFS = 0xFF534D42
	fsAFS  = 0x5346414F
)

// networkName returns the name of the network file system with this number, "" if
// it is none that we know.
func networkName(number uint32) string {
	switch number {
	case fsNFS:
		return "NFS"
	case fsSMB, fsSMB2, fsCIFS:
		return "SMB"
	case fsAFS:
		return "AFS"
	}
	return ""
}

// refuseNetwork returns ErrNetworkFile if the number is that of a network file system.
func refuseNetwork(dir string, number uint32) error {
	if name := networkName(number); name != "" {
		return fmt.Errorf("%w: %s is on %s", ErrNetworkFile, dir, name)
	}
	return nil
}
