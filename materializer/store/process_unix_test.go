//go:build unix

package store_test

import (
	"os/exec"
	"syscall"
)

// dropPrivileges lets the process run as "nobody".
func dropPrivileges(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534, NoSetGroups: true}}
}
