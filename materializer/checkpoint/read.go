package checkpoint

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/materializer/store"
)

// Verify reads all parts of a checkpoint and compares their checksums. The error is
// [ErrDamaged] if one is not what it was, or is gone.
func (b *Bucket) Verify(ctx context.Context, c *Checkpoint) error {
	if err := b.fetch(ctx, &c.State, io.Discard); err != nil {
		return err
	}
	return b.verifyIDs(ctx, c)
}

func (b *Bucket) verifyIDs(ctx context.Context, c *Checkpoint) error {
	for i := range c.IDs {
		if err := b.fetch(ctx, &c.IDs[i].File, io.Discard); err != nil {
			return err
		}
	}
	return nil
}

// Load brings a checkpoint into dir, which must be empty, and returns the path of a
// snapshot that is complete: its event ids are in it, and it is of this program's
// schema. The error is [ErrDamaged] if a part is not what it was, or is gone.
func (b *Bucket) Load(ctx context.Context, c *Checkpoint, dir string, horizon int64) (string, error) {
	path := filepath.Join(dir, "state")
	if err := b.fetchTo(ctx, &c.State, path); err != nil {
		return "", err
	}
	var ids []string
	for i := range c.IDs {
		ids = append(ids, filepath.Join(dir, fmt.Sprintf("ids.%d", i)))
		if err := b.fetchTo(ctx, &c.IDs[i].File, ids[i]); err != nil {
			return "", err
		}
	}
	s, err := store.AddIDs(ctx, path, c.Highest-horizon, ids...)
	switch {
	case errors.Is(err, store.ErrCorrupt), errors.Is(err, store.ErrNotDatabase):
		return "", fmt.Errorf("%w: %s: %w", ErrDamaged, c.Name, err)
	case err != nil:
		return "", err
	case s.IngestSeq != c.Position || s.EventsSeq != c.Number || s.Epoch != c.Epoch:
		return "", fmt.Errorf("%w: %s: it says position %d and number %d, its state %d and %d", ErrDamaged, c.Name, c.Position, c.Number, s.IngestSeq, s.EventsSeq)
	}
	for _, p := range ids {
		if err := os.Remove(p); err != nil {
			return "", fmt.Errorf("read checkpoint: %w", err)
		}
	}
	return path, nil
}

func (b *Bucket) fetchTo(ctx context.Context, f *File, path string) error {
	out, err := os.OpenFile(path, os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
	if err != nil {
		return fmt.Errorf("read checkpoint: %w", err)
	}
	return errors.Join(b.fetch(ctx, f, out), out.Close())
}

// fetch reads a file's parts in their order and writes the whole into w.
func (b *Bucket) fetch(ctx context.Context, f *File, w io.Writer) error {
	parts := &partReader{ctx: ctx, b: b, parts: f.Parts}
	z, err := gzip.NewReader(parts)
	if err == nil {
		whole := sha256.New()
		var n int64
		if n, err = io.Copy(io.MultiWriter(w, whole), z); err == nil && (n != f.Size || hex.EncodeToString(whole.Sum(nil)) != f.SHA256) {
			err = fmt.Errorf("%w: %s: the whole has another checksum", ErrDamaged, f.first())
		}
	}
	switch {
	case errors.Is(err, gzip.ErrChecksum), errors.Is(err, gzip.ErrHeader), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, io.EOF):
		return fmt.Errorf("%w: %s: %w", ErrDamaged, f.first(), err)
	case errors.Is(err, jetstream.ErrObjectNotFound):
		return fmt.Errorf("%w: a part is gone: %w", ErrDamaged, err)
	}
	return err
}

func (f *File) first() string {
	if len(f.Parts) == 0 {
		return "a file without parts"
	}
	return f.Parts[0].Name
}

// partReader reads objects one after the other, each checked before any of it is used.
type partReader struct {
	ctx   context.Context // of the one call that it belongs to
	b     *Bucket
	parts []Part
	buf   []byte
}

func (r *partReader) Read(p []byte) (int, error) {
	for len(r.buf) == 0 {
		if len(r.parts) == 0 {
			return 0, io.EOF
		}
		next := r.parts[0]
		content, err := r.b.get(r.ctx, next.Name)
		if err != nil {
			return 0, err
		}
		if hashText(content) != next.SHA256 {
			return 0, fmt.Errorf("%w: %s: its checksum is another", ErrDamaged, next.Name)
		}
		r.buf, r.parts = content, r.parts[1:]
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}
