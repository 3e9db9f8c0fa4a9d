package checkpoint

import (
	"compress/gzip"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

const (
	// partBytes bounds an object, compressed.
	partBytes = 4 << 20
	// maxIDs is how many files of event ids a checkpoint names; the next one then
	// begins with all of them again.
	maxIDs = 32
)

// WriteOptions say what a checkpoint is made of.
type WriteOptions struct {
	// Base is the checkpoint whose event ids are named again, nil for none. It must
	// be of the same INGEST and no later than the store.
	Base *Checkpoint
	// Dir is where the snapshot is put while it is sent. What is left there after a
	// crash is the caller's to remove.
	Dir string
	// Horizon is how long event ids are known, ns.
	Horizon int64
	// Reader is the store.
	Reader *store.Reader
	// Seam is called at each step with its name, and its error taken for a crash.
	// Nil is none. For tests.
	Seam func(name string) error
}

// Write takes a snapshot of the store and keeps it as a checkpoint. When it returns
// without an error, all of it has been read back. ids of Base that can not be read are
// replaced by all that the store knows.
func (b *Bucket) Write(ctx context.Context, o WriteOptions) (c Checkpoint, err error) {
	if o.Seam == nil {
		o.Seam = func(string) error { return nil }
	}
	if o.Base != nil && (len(o.Base.IDs) >= maxIDs || b.verifyIDs(ctx, o.Base) != nil) {
		o.Base = nil
	}
	from := uint64(0)
	if o.Base != nil {
		from = o.Base.Position
	}
	state, ids := filepath.Join(o.Dir, "state"), filepath.Join(o.Dir, "ids")
	snap, err := o.Reader.Snapshot(ctx, store.SnapshotOptions{Path: state, IDs: ids, IDsAfter: from})
	if err != nil {
		return c, err
	}
	if snap.IngestSeq < from {
		return c, fmt.Errorf("write checkpoint: %w: the store is at %d, the checkpoint before at %d", errBehind, snap.IngestSeq, from)
	}
	if err := o.Seam("snapshot"); err != nil {
		return c, err
	}
	c = Checkpoint{
		Version: version, Contract: bus.Contract, Schema: snap.Schema, Store: snap.StoreID, Epoch: snap.Epoch, IngestID: snap.IngestID,
		Position: snap.IngestSeq, Time: snap.IngestTime, Hash: hex.EncodeToString(snap.IngestHash[:]), Number: snap.EventsSeq, Highest: snap.HighestTime,
		Name: fmt.Sprintf("%s%020d-%s", prefix, snap.IngestSeq, bus.NewID()),
	}
	if c.State, err = b.send(ctx, c.Name+"/state", state); err != nil {
		return c, err
	}
	if o.Base != nil {
		for _, old := range o.Base.IDs {
			if old.Newest >= snap.HighestTime-o.Horizon {
				c.IDs = append(c.IDs, old)
			}
		}
	}
	if snap.IDs > 0 {
		f, err := b.send(ctx, c.Name+"/ids", ids)
		if err != nil {
			return c, err
		}
		c.IDs = append(c.IDs, IDs{File: f, From: from, To: snap.IngestSeq, Newest: snap.NewestID})
	}
	if err := o.Seam("parts sent"); err != nil {
		return c, err
	}
	if err := b.Verify(ctx, &c); err != nil {
		return c, fmt.Errorf("read checkpoint back: %w", err)
	}
	if err := o.Seam("read back"); err != nil {
		return c, err
	}
	return b.sendManifest(ctx, c)
}

// errBehind: the store is further back than the checkpoint that it would follow.
var errBehind = errors.New("another store has gone further")

func (b *Bucket) sendManifest(ctx context.Context, c Checkpoint) (Checkpoint, error) {
	text, err := json.Marshal(&c)
	if err != nil {
		return c, fmt.Errorf("encode checkpoint: %w", err)
	}
	whole, err := json.Marshal(envelope{SHA256: hashText(text), Checkpoint: text})
	if err != nil {
		return c, fmt.Errorf("encode checkpoint: %w", err)
	}
	if err := b.put(ctx, c.Name+manifestName, whole); err != nil {
		return c, err
	}
	ctx, cancel := b.transfer(ctx, "the manifest")
	defer cancel()
	info, err := b.obj.GetInfo(ctx, c.Name+manifestName)
	if err != nil {
		return c, fmt.Errorf("read checkpoint back: %w", err)
	}
	return b.manifest(ctx, info)
}

// send puts a file into the bucket, in parts whose names begin with name.
func (b *Bucket) send(ctx context.Context, name, path string) (f File, err error) {
	in, err := os.Open(path)
	if err != nil {
		return f, fmt.Errorf("send checkpoint: %w", err)
	}
	defer in.Close()
	parts := &partWriter{ctx: ctx, b: b, name: name}
	whole := sha256.New()
	z, err := gzip.NewWriterLevel(parts, gzip.BestSpeed)
	if err != nil {
		return f, err
	}
	f.Size, err = io.Copy(io.MultiWriter(z, whole), in)
	if err == nil {
		err = z.Close()
	}
	if err == nil {
		err = parts.flush()
	}
	if err != nil {
		return f, fmt.Errorf("send checkpoint: %w", err)
	}
	f.Parts, f.SHA256 = parts.parts, hex.EncodeToString(whole.Sum(nil))
	return f, nil
}

// partWriter cuts what is written into objects.
type partWriter struct {
	ctx   context.Context // of the one call that it belongs to
	b     *Bucket
	name  string
	buf   []byte
	parts []Part
}

func (w *partWriter) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		k := min(len(p), partBytes-len(w.buf))
		w.buf = append(w.buf, p[:k]...)
		if p = p[k:]; len(w.buf) == partBytes {
			if err := w.flush(); err != nil {
				return 0, err
			}
		}
	}
	return n, nil
}

func (w *partWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	p := Part{Name: fmt.Sprintf("%s.%04d", w.name, len(w.parts)+1), SHA256: hashText(w.buf)}
	if err := w.b.put(w.ctx, p.Name, w.buf); err != nil {
		return err
	}
	w.parts, w.buf = append(w.parts, p), w.buf[:0]
	return nil
}
