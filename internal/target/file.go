package target

import (
	"context"
	"path/filepath"

	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/materializer/store"
)

// file reads the store of a data directory, also while serve writes it.
type file struct {
	api    *api.API
	dir    string
	reader *store.Reader
}

func openFile(dir string) (*file, error) {
	r, err := store.OpenReader(filepath.Join(dir, StoreFile))
	if err != nil {
		return nil, err
	}
	return &file{api: api.New(api.Options{Reader: r}), dir: dir, reader: r}, nil
}

func (f *file) Events(ctx context.Context, p api.Params) ([]byte, error) {
	return f.api.Events(ctx, p, 0)
}

func (f *file) Sessions(ctx context.Context, p api.Params) ([]byte, error) {
	return f.api.Sessions(ctx, p, 0)
}

func (f *file) Session(ctx context.Context, id string, p api.Params) ([]byte, error) {
	return f.api.Session(ctx, id, p, 0)
}

func (f *file) Status(ctx context.Context) ([]byte, error) {
	return f.api.Status(ctx, nil)
}

func (f *file) String() string { return f.dir }

func (f *file) Close() error { return f.reader.Close() }
