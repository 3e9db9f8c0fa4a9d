package natsd

import (
	"errors"
)

// Errors of [Start]. Each is wrapped with the address, directory or file it
// concerns.
var (
	// ErrAddress: Listen is not host:port.
	ErrAddress = errors.New("not a listen address")
	// ErrExposed: Listen is not a loopback address and there is no
	// configuration file that could say who may connect.
	ErrExposed = errors.New("address can be reached from other machines")
	// ErrConfig: the configuration file can not be used.
	ErrConfig = errors.New("NATS configuration can not be used")
	// ErrStoreDir: JetStream's directory can not be made or written.
	ErrStoreDir = errors.New("JetStream directory is not writable")
	// ErrListen: the address could not be bound; the operating system's error
	// is wrapped too.
	ErrListen = errors.New("can not listen")
)
