package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/skaldbus/skald/materializer/store"
)

// Names of the files of a backup.
const (
	ManifestFile = "manifest.json"
	StoreFile    = "skald.db"
)

// format is that of the manifests this program writes and reads.
const format = 1

// Errors of reading a backup.
var (
	// ErrNoBackup: the directory has no manifest of a backup.
	ErrNoBackup = errors.New("not a backup")
	// ErrNewer: the backup was written by a newer program.
	ErrNewer = errors.New("the backup is of a newer version")
	// ErrDamaged: the store's file is not the one that the manifest tells of.
	ErrDamaged = errors.New("the backup is damaged")
	// ErrExists: where the result is to be, there is something already.
	ErrExists = errors.New("there is something already")
)

// Manifest says what a backup holds.
type Manifest struct {
	Format    int       `json:"format"`
	CreatedAt time.Time `json:"created_at"`
	Version   string    `json:"skald_version"`
	Schema    int       `json:"schema"`
	Contract  int       `json:"contract"`

	Epoch    string `json:"epoch"`
	IngestID string `json:"ingest_id"`
	StoreID  string `json:"store_id"`

	// Position in INGEST: the last message that is in the backup, and its stored time.
	IngestSeq    uint64 `json:"ingest_seq"`
	IngestTimeNS int64  `json:"ingest_time_ns"`
	// The numbers that the table reaches from and to.
	OldestSeq uint64 `json:"oldest_seq"`
	LatestSeq uint64 `json:"latest_seq"`
	Sessions  int64  `json:"sessions"`

	Size   int64  `json:"size"`   // bytes of skald.db
	SHA256 string `json:"sha256"` // of skald.db, in hex
}

// describe fills in what the store itself says.
func (m *Manifest) describe(b store.Backup) {
	m.Schema, m.Epoch, m.IngestID, m.StoreID = b.Schema, b.Epoch, b.IngestID, b.StoreID
	m.IngestSeq, m.IngestTimeNS = b.IngestSeq, b.IngestTime
	m.OldestSeq, m.LatestSeq, m.Sessions = b.Oldest, b.EventsSeq, b.Sessions
}

// ReadManifest reads what the backup in dir holds. The error is [ErrNoBackup] or
// [ErrNewer] where it is one of these.
func ReadManifest(dir string) (Manifest, error) {
	var m Manifest
	b, err := os.ReadFile(filepath.Join(dir, ManifestFile))
	if errors.Is(err, os.ErrNotExist) {
		return m, fmt.Errorf("%s: %w: it has no %s", dir, ErrNoBackup, ManifestFile)
	}
	if err != nil {
		return m, fmt.Errorf("read backup: %w", err)
	}
	if err := json.Unmarshal(b, &m); err != nil {
		return m, fmt.Errorf("%s: %w: %s: %w", dir, ErrNoBackup, ManifestFile, err)
	}
	switch {
	case m.Format > format:
		return m, fmt.Errorf("%s: %w: its format is %d, this program reads %d", dir, ErrNewer, m.Format, format)
	case m.Format < 1 || m.SHA256 == "":
		return m, fmt.Errorf("%s: %w: %s has no format or checksum", dir, ErrNoBackup, ManifestFile)
	}
	return m, nil
}

func writeManifest(dir string, m *Manifest) error {
	b, err := json.MarshalIndent(m, "", "  ")
	if err != nil {
		return err
	}
	path := filepath.Join(dir, ManifestFile)
	if err := os.WriteFile(path, append(b, '\n'), 0o600); err != nil {
		return err
	}
	return syncPath(path)
}
