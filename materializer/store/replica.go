package store

import "context"

// ID returns the store's own id: 16 hex digits, made with the file. A copy of the
// file has the same one, until [Store.NewID].
func (r *Reader) ID(ctx context.Context) (string, error) {
	return view(ctx, r, "read store id", func(ctx context.Context, t *tx) (id string, err error) {
		return id, t.row(ctx, sqlStoreID).Scan(&id)
	})
}

// NewID gives the store another id, durably: for a copy of a store that runs beside
// the one that it was copied from.
func (s *Store) NewID(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exec(ctx, "take a new store id", sqlNewStoreID)
}

// Restored reports whether the store came out of a backup and has not yet come as far as
// EVENTS: numbers beyond its rows may have been seen by readers, and only EVENTS can tell.
func (r *Reader) Restored(ctx context.Context) (bool, error) {
	return view(ctx, r, "read whether the store was restored", func(ctx context.Context, t *tx) (restored bool, err error) {
		return restored, t.row(ctx, sqlRestored).Scan(&restored)
	})
}

// SetRestored notes that the store came out of a backup, or that its table has come as
// far as EVENTS since, durably.
func (s *Store) SetRestored(ctx context.Context, restored bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.exec(ctx, "note a restore", sqlSetRestored, restored)
}

// Path returns the file's absolute path.
func (s *Store) Path() string { return s.path }
