package store

import (
	"net/url"
	"path/filepath"
	"strings"
	"time"
)

// BusyTimeout is how long a statement waits for the lock of another program.
const BusyTimeout = 5 * time.Second

// Parameters of connections: those that the driver reads begin with an underscore.
// The busy timeout is BusyTimeout in ms.
const (
	// probeParams touch nothing: the file may be another program's. mode=rw does
	// not create.
	probeParams = "mode=rw&_txlock=immediate&_busy_timeout=5000&_error_rc=1"
	// createParams make a new file that can give pages back later.
	createParams = "mode=rwc&_txlock=immediate&_auto_vacuum=INCREMENTAL&_synchronous=FULL" + commonParams
	// writerParams: immediate transactions, since one that reads first and writes
	// later is refused at once when another program wrote in between. The log is cut
	// to 64 MiB once readers have let go of it. It is moved into the file at 32 MiB: under
	// load every commit writes to the same pages of sessions and indexes, which are then
	// moved once instead of each time. What leaves the file is overwritten at once: bytes
	// of a session that is forgotten are spread over pages that were in use long before
	// anyone knew that it would be.
	writerParams = "mode=rw&_txlock=immediate&_journal_mode=WAL&_synchronous=FULL" +
		"&_pragma=journal_size_limit(67108864)&_pragma=wal_autocheckpoint(8000)&_pragma=secure_delete(1)" +
		"&_pragma=cache_size(-16384)" + commonParams
	// readerParams: any commit empties a reader's cache, so a large one is no use.
	readerParams = "mode=ro&_pragma=cache_size(-4096)" + commonParams
	// frozenParams read a file that nobody writes without touching its directory.
	frozenParams = "mode=ro&immutable=1&_pragma=cache_size(-4096)" + commonParams

	// On macOS a plain fsync is no barrier; elsewhere fullfsync does nothing.
	commonParams = "&_busy_timeout=5000&_error_rc=1&_dqs=0&_pragma=fullfsync(1)&_pragma=checkpoint_fullfsync(1)"
)

// dsn returns the driver's name for the file at path, which must be absolute. A
// file: URI with every special byte of the path escaped: pasted in plainly, a ? or
// # would cut the path short and % would be decoded, so that two directories
// shared one file. On a plain path the driver ignores the parameters.
func dsn(path, params string) string {
	slashed := filepath.ToSlash(path)
	if !strings.HasPrefix(slashed, "/") {
		slashed = "/" + slashed // C:/data
	}
	u := url.URL{Scheme: "file", Path: slashed, RawQuery: params}
	return u.String()
}
