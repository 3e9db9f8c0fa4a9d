package registry

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/skaldbus/skald/bus"
)

// keyPrefix begins the keys of entries; other things may come to stand in the bucket.
const keyPrefix = "store."

// ErrChanged: the entry is not the one that its writer has seen last: another process
// has written it, or it was removed.
var ErrChanged = errors.New("the entry was changed by another")

// Entry is what a store says of itself.
type Entry struct {
	ID       string `json:"-"`         // the store's
	Label    string `json:"label"`     // for people: the host and the directory
	Run      string `json:"run"`       // of the process that wrote it; new at each start
	Epoch    string `json:"epoch"`     // of the numbers
	IngestID string `json:"ingest_id"` // of the stream that Position counts in
	Contract int    `json:"contract"`
	Position uint64 `json:"position"` // INGEST's messages above it are still needed
	Number   uint64 `json:"number"`   // the highest number of EVENTS that is committed

	Seen     time.Time `json:"-"` // when the server took it, by its clock
	Revision uint64    `json:"-"`
}

// Registry is the bucket. It is safe for concurrent use.
type Registry struct{ kv jetstream.KeyValue }

// Open opens the bucket, and makes it with so many replicas if it is not there.
func Open(ctx context.Context, js jetstream.JetStream, s bus.Subjects, replicas int) (*Registry, error) {
	r, err := Find(ctx, js, s)
	if !errors.Is(err, bus.ErrNotFound) {
		return r, err
	}
	kv, err := js.CreateKeyValue(ctx, jetstream.KeyValueConfig{
		Bucket: s.StateBucket(), Description: "stores and how far they are", History: 1, Replicas: replicas,
	})
	if errors.Is(err, jetstream.ErrBucketExists) {
		return Find(ctx, js, s)
	}
	if err != nil {
		return nil, fmt.Errorf("make the list of stores in %s: %w", s.StateBucket(), err)
	}
	return &Registry{kv}, nil
}

// Find opens the bucket; bus.ErrNotFound if there is none, which is so until the first
// store has registered.
func Find(ctx context.Context, js jetstream.JetStream, s bus.Subjects) (*Registry, error) {
	kv, err := js.KeyValue(ctx, s.StateBucket())
	if errors.Is(err, jetstream.ErrBucketNotFound) {
		return nil, fmt.Errorf("open the list of stores in %s: %w", s.StateBucket(), bus.ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("open the list of stores in %s: %w", s.StateBucket(), err)
	}
	return &Registry{kv}, nil
}

// Put writes e in the place of the revision, 0 for none, and returns the new one. The
// error is [ErrChanged] if another revision stands there.
func (r *Registry) Put(ctx context.Context, e Entry, revision uint64) (uint64, error) {
	b, err := json.Marshal(e)
	if err != nil {
		return 0, fmt.Errorf("register store %s: %w", e.ID, err)
	}
	var next uint64
	if revision == 0 {
		next, err = r.kv.Create(ctx, keyPrefix+e.ID, b)
	} else {
		next, err = r.kv.Update(ctx, keyPrefix+e.ID, b, revision)
	}
	var api *jetstream.APIError
	if errors.Is(err, jetstream.ErrKeyExists) || errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		err = ErrChanged
	}
	if err != nil {
		return 0, fmt.Errorf("register store %s: %w", e.ID, err)
	}
	return next, nil
}

// Get returns the entry of a store, bus.ErrNotFound if there is none.
func (r *Registry) Get(ctx context.Context, id string) (Entry, error) {
	v, err := r.kv.Get(ctx, keyPrefix+id)
	if errors.Is(err, jetstream.ErrKeyNotFound) || errors.Is(err, jetstream.ErrInvalidKey) {
		return Entry{}, fmt.Errorf("store %q is not registered: %w", id, bus.ErrNotFound)
	}
	if err != nil {
		return Entry{}, fmt.Errorf("read the entry of store %s: %w", id, err)
	}
	return parse(v)
}

// List returns all entries, by id.
func (r *Registry) List(ctx context.Context) ([]Entry, error) {
	w, err := r.kv.Watch(ctx, keyPrefix+"*", jetstream.IgnoreDeletes())
	if err != nil {
		return nil, fmt.Errorf("list stores: %w", err)
	}
	defer w.Stop() //nolint:errcheck // nothing is lost with it
	var all []Entry
	for {
		select {
		case v, ok := <-w.Updates():
			if !ok {
				return nil, fmt.Errorf("list stores: %w", jetstream.ErrConnectionClosed)
			}
			if v == nil { // that was all there is
				slices.SortFunc(all, func(a, b Entry) int { return strings.Compare(a.ID, b.ID) })
				return all, nil
			}
			e, err := parse(v)
			if err != nil {
				return nil, err
			}
			all = append(all, e)
		case <-ctx.Done():
			return nil, fmt.Errorf("list stores: %w", context.Cause(ctx))
		}
	}
}

func parse(v jetstream.KeyValueEntry) (Entry, error) {
	e := Entry{}
	if err := json.Unmarshal(v.Value(), &e); err != nil {
		return Entry{}, fmt.Errorf("read the entry of %s: %w", v.Key(), err)
	}
	e.ID, e.Seen, e.Revision = strings.TrimPrefix(v.Key(), keyPrefix), v.Created(), v.Revision()
	return e, nil
}

// Remove takes the entry out if it is still this one; [ErrChanged] if it is not.
func (r *Registry) Remove(ctx context.Context, e Entry) error {
	err := r.kv.Purge(ctx, keyPrefix+e.ID, jetstream.LastRevision(e.Revision))
	var api *jetstream.APIError
	if errors.As(err, &api) && api.ErrorCode == jetstream.JSErrCodeStreamWrongLastSequence {
		err = ErrChanged
	}
	if err != nil {
		return fmt.Errorf("remove the entry of store %s: %w", e.ID, err)
	}
	return nil
}
