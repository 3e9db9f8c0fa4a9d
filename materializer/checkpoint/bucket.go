package checkpoint

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

const (
	prefix       = "checkpoint/"
	manifestName = "/manifest"
	// version is the form of manifests and parts.
	version = 1
	// transferTimeout bounds one object, of at most partBytes.
	transferTimeout = 30 * time.Second
)

// ErrDamaged: a checkpoint can not be read as it was written.
var ErrDamaged = errors.New("checkpoint is damaged")

// Bucket is the object store of a bus. It is safe for concurrent use.
type Bucket struct {
	name string
	js   jetstream.JetStream
	obj  jetstream.ObjectStore
}

// Open opens the object store, and makes it with so many replicas if it is not there.
func Open(ctx context.Context, js jetstream.JetStream, s bus.Subjects, replicas int) (*Bucket, error) {
	b, err := Find(ctx, js, s)
	if !errors.Is(err, bus.ErrNotFound) {
		return b, err
	}
	name := s.StateBucket()
	obj, err := js.CreateObjectStore(ctx, jetstream.ObjectStoreConfig{
		Bucket: name, Description: "what neither stream can say", Replicas: replicas,
	})
	if errors.Is(err, jetstream.ErrBucketExists) {
		return Find(ctx, js, s)
	}
	if err != nil {
		return nil, fmt.Errorf("make %s: %w", name, err)
	}
	return &Bucket{name, js, obj}, nil
}

// Find opens the object store; bus.ErrNotFound if there is none.
func Find(ctx context.Context, js jetstream.JetStream, s bus.Subjects) (*Bucket, error) {
	name := s.StateBucket()
	obj, err := js.ObjectStore(ctx, name)
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("open %s: %w", name, bus.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return &Bucket{name, js, obj}, nil
}

// Objects returns the object store itself, for what else stands in it.
func (b *Bucket) Objects() jetstream.ObjectStore { return b.obj }

// Checkpoint says what a checkpoint holds and of what it consists.
type Checkpoint struct {
	Version  int    `json:"version"`
	Contract int    `json:"contract"` // of the states
	Schema   int    `json:"schema"`   // of the store's file
	Store    string `json:"store"`    // the id of the store that it was taken of
	Epoch    string `json:"epoch"`
	IngestID string `json:"ingest_id"`
	Position uint64 `json:"position"`      // INGEST's last message that is in it
	Time     int64  `json:"position_time"` // its stored time, ns since 1970
	Hash     string `json:"position_hash"` // its hash, hex
	Number   uint64 `json:"number"`        // the last number of EVENTS that is in it
	Highest  int64  `json:"highest_time"`  // the highest stored time of INGEST, ns since 1970
	State    File   `json:"state"`
	IDs      []IDs  `json:"ids"` // oldest first

	Name string    `json:"-"` // begins the names of its own parts
	Made time.Time `json:"-"` // when the server took the manifest, by its clock
}

// File is a file in parts.
type File struct {
	Parts  []Part `json:"parts"`
	Size   int64  `json:"size"` // of the whole, not compressed
	SHA256 string `json:"sha256"`
}

// Part is one object.
type Part struct {
	Name   string `json:"name"`
	SHA256 string `json:"sha256"`
}

// IDs are the event ids that INGEST's messages after From up to To brought.
type IDs struct {
	File
	From   uint64 `json:"from"`
	To     uint64 `json:"to"`
	Newest int64  `json:"newest"` // the latest time at which one of them was applied, ns since 1970
}

// envelope is the content of a manifest.
type envelope struct {
	SHA256     string          `json:"sha256"` // of the bytes of checkpoint
	Checkpoint json.RawMessage `json:"checkpoint"`
}

// List returns the checkpoints that have a manifest, newest first. damaged tells of
// manifests that can not be read; those are left out.
func (b *Bucket) List(ctx context.Context) (list []Checkpoint, damaged []error, err error) {
	objects, err := b.objects(ctx)
	if err != nil {
		return nil, nil, err
	}
	for _, o := range objects {
		if !strings.HasSuffix(o.Name, manifestName) {
			continue
		}
		c, err := b.manifest(ctx, o)
		switch {
		case errors.Is(err, ErrDamaged):
			damaged = append(damaged, err)
		case errors.Is(err, jetstream.ErrObjectNotFound): // it has just been removed
		case err != nil:
			return nil, nil, err
		default:
			list = append(list, c)
		}
	}
	slices.SortStableFunc(list, func(x, y Checkpoint) int { return y.Made.Compare(x.Made) })
	return list, damaged, nil
}

// objects returns what lies there of checkpoints.
func (b *Bucket) objects(ctx context.Context) ([]*jetstream.ObjectInfo, error) {
	ctx, cancel := b.transfer(ctx, "the list")
	defer cancel()
	all, err := b.obj.List(ctx)
	if errors.Is(err, jetstream.ErrNoObjectsFound) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list checkpoints in %s: %w", b.name, err)
	}
	return slices.DeleteFunc(all, func(o *jetstream.ObjectInfo) bool { return !strings.HasPrefix(o.Name, prefix) }), nil
}

func (b *Bucket) manifest(ctx context.Context, o *jetstream.ObjectInfo) (Checkpoint, error) {
	var c Checkpoint
	text, err := b.get(ctx, o.Name)
	if err != nil {
		return c, err
	}
	var e envelope
	if err := json.Unmarshal(text, &e); err != nil {
		return c, fmt.Errorf("%w: %s: %w", ErrDamaged, o.Name, err)
	}
	if hashText(e.Checkpoint) != e.SHA256 {
		return c, fmt.Errorf("%w: %s: its checksum is another", ErrDamaged, o.Name)
	}
	if err := json.Unmarshal(e.Checkpoint, &c); err != nil {
		return c, fmt.Errorf("%w: %s: %w", ErrDamaged, o.Name, err)
	}
	if c.Version != version {
		return c, fmt.Errorf("%w: %s: its version is %d, this program reads %d", ErrDamaged, o.Name, c.Version, version)
	}
	c.Name, c.Made = strings.TrimSuffix(o.Name, manifestName), o.ModTime.UTC()
	return c, nil
}

func (b *Bucket) transfer(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, transferTimeout, fmt.Errorf("%s did not come within %s", what, transferTimeout))
}

// get returns an object. A part that is gone or not whole is ErrDamaged or
// jetstream.ErrObjectNotFound.
func (b *Bucket) get(ctx context.Context, name string) ([]byte, error) {
	ctx, cancel := b.transfer(ctx, name)
	defer cancel()
	content, err := b.obj.GetBytes(ctx, name)
	switch {
	case err == nil:
		return content, nil
	case errors.Is(err, jetstream.ErrDigestMismatch), errors.Is(err, jetstream.ErrBadObjectMeta):
		return nil, fmt.Errorf("%w: %s: %w", ErrDamaged, name, err)
	}
	return nil, fmt.Errorf("read %s: %w", name, err)
}

func (b *Bucket) put(ctx context.Context, name string, content []byte) error {
	ctx, cancel := b.transfer(ctx, name)
	defer cancel()
	if _, err := b.obj.PutBytes(ctx, name, content); err != nil {
		return fmt.Errorf("write %s: %w", name, err)
	}
	return nil
}

func hashText(b []byte) string {
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}
