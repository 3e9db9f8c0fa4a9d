//go:build !unix

package store_test

import "os/exec"

// dropPrivileges is for systems that have a root user.
func dropPrivileges(*exec.Cmd) {}
