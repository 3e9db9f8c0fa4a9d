//go:build !unix

package outbox

// syncDir does nothing: a directory can not be synced here.
func syncDir(string) error { return nil }
