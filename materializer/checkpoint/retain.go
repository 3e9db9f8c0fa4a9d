package checkpoint

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/nats-io/nats.go/jetstream"
)

// orphanAge is after what time parts that no manifest names are taken for those of a
// writer that died.
const orphanAge = time.Hour

// Retain removes what is not needed for keep: checkpoints that were made before all of
// them, and what has belonged to no checkpoint for an hour. now is the server's time.
// overwrite has the bytes of what goes overwritten.
func (b *Bucket) Retain(ctx context.Context, keep []Checkpoint, now time.Time, overwrite bool) error {
	if len(keep) == 0 {
		return nil
	}
	list, _, err := b.List(ctx)
	if err != nil {
		return err
	}
	oldest := slices.MinFunc(keep, func(x, y Checkpoint) int { return x.Made.Compare(y.Made) }).Made
	needed, dropped := map[string]bool{}, map[string]bool{}
	for _, c := range list {
		if c.Made.Before(oldest) {
			// Before its parts: what has a manifest is whole.
			if err := b.remove(ctx, c.Name+manifestName); err != nil {
				return err
			}
			dropped[c.Name] = true
			continue
		}
		needed[c.Name+manifestName] = true
		for _, p := range c.parts() {
			needed[p.Name] = true
		}
	}
	objects, err := b.objects(ctx)
	if err != nil {
		return err
	}
	for _, o := range objects {
		folder := o.Name[:strings.LastIndexByte(o.Name, '/')]
		if orphan := now.Sub(o.ModTime) > orphanAge; !needed[o.Name] && (dropped[folder] || orphan) {
			if overwrite {
				if err := b.overwrite(ctx, o); err != nil {
					return err
				}
			}
			if err := b.remove(ctx, o.Name); err != nil {
				return err
			}
		}
	}
	return nil
}

// overwrite deletes the chunks of an object, one by one, so that the server overwrites
// each. The object can not be read any more then, and is still there to be removed.
func (b *Bucket) overwrite(ctx context.Context, o *jetstream.ObjectInfo) error {
	ctx, cancel := b.transfer(ctx, o.Name)
	defer cancel()
	s, err := b.js.Stream(ctx, "OBJ_"+b.name)
	if err != nil {
		return fmt.Errorf("overwrite %s: %w", o.Name, err)
	}
	subject := "$O." + b.name + ".C." + o.NUID
	for seq := uint64(1); ; seq++ {
		raw, err := s.GetMsg(ctx, seq, jetstream.WithGetMsgSubject(subject))
		if errors.Is(err, jetstream.ErrMsgNotFound) {
			return nil
		}
		if err == nil {
			seq = raw.Sequence
			err = s.SecureDeleteMsg(ctx, seq)
		}
		if err != nil && !errors.Is(err, jetstream.ErrMsgNotFound) {
			return fmt.Errorf("overwrite %s: %w", o.Name, err)
		}
	}
}

func (b *Bucket) remove(ctx context.Context, name string) error {
	ctx, cancel := b.transfer(ctx, name)
	defer cancel()
	if err := b.obj.Delete(ctx, name); err != nil && !errors.Is(err, jetstream.ErrObjectNotFound) {
		return fmt.Errorf("remove %s: %w", name, err)
	}
	return nil
}

// parts returns all objects that the checkpoint needs but the manifest.
func (c *Checkpoint) parts() []Part {
	all := slices.Clone(c.State.Parts)
	for i := range c.IDs {
		all = append(all, c.IDs[i].Parts...)
	}
	return all
}
