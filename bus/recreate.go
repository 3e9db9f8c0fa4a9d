package bus

import (
	"context"
	"errors"
	"fmt"
	"maps"

	"github.com/nats-io/nats.go/jetstream"
)

// What repairs do to the streams of a bus that is known. Nothing else changes a stream
// or makes one for a store that has a bus.

// RecreateEvents makes EVENTS for the epoch, empty, so that its first message gets the
// number first, from 1. like holds the settings of the stream that was there, nil if
// they are not known: then it has those of a new bus. Void messages can be purged from
// it until [Subjects.SealEvents] is called. It must not exist.
func (s Subjects) RecreateEvents(ctx context.Context, js jetstream.JetStream, o StreamOptions, epoch string, first uint64, like *jetstream.StreamConfig) (jetstream.Stream, error) {
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	c := s.eventsConfig(o, epoch)
	if like != nil {
		ours := c.Metadata
		c = *like
		c.Metadata = maps.Clone(like.Metadata)
		if c.Metadata == nil {
			c.Metadata = map[string]string{}
		}
		maps.Copy(c.Metadata, ours)
	}
	c.FirstSeq, c.DenyPurge = first, false
	st, err := js.CreateStream(ctx, c)
	return st, wrap("create stream "+c.Name, err)
}

// SealEvents forbids purging EVENTS, as it is with a new bus.
func (s Subjects) SealEvents(ctx context.Context, js jetstream.JetStream) error {
	return s.update(ctx, js, s.EventsStream(), func(c *jetstream.StreamConfig) bool {
		done := c.DenyPurge
		c.DenyPurge = true
		return done
	})
}

// RecreateIngest makes INGEST for the epoch, empty, with the settings of a new bus.
func (s Subjects) RecreateIngest(ctx context.Context, js jetstream.JetStream, o StreamOptions, epoch string) (jetstream.Stream, error) {
	if o.IDHorizon == 0 {
		o.IDHorizon = DefaultIDHorizon
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	st, err := createIngest(ctx, js, s, o, epoch)
	return st, wrap("create stream "+s.IngestStream(), err)
}

// SetEpoch writes the epoch into the metadata of EVENTS, which counts, and then of
// INGEST, as far as they exist. Both keep all other settings.
func (s Subjects) SetEpoch(ctx context.Context, js jetstream.JetStream, epoch string) error {
	for _, name := range []string{s.EventsStream(), s.IngestStream()} {
		err := s.update(ctx, js, name, func(c *jetstream.StreamConfig) bool {
			done := c.Metadata[MetaEpoch] == epoch && c.Metadata[MetaContract] != ""
			if c.Metadata == nil {
				c.Metadata = map[string]string{}
			}
			c.Metadata[MetaEpoch] = epoch
			if c.Metadata[MetaContract] == "" {
				c.Metadata[MetaContract] = fmt.Sprint(Contract)
			}
			return done
		})
		if err != nil && !errors.Is(err, jetstream.ErrStreamNotFound) {
			return err
		}
	}
	return nil
}

// update changes a stream's settings, unless change says that they are right already.
// FirstSeq stays as the server tells it: another one would purge the stream when the
// server starts again (nats-server 2.15.3).
func (s Subjects) update(ctx context.Context, js jetstream.JetStream, name string, change func(*jetstream.StreamConfig) (done bool)) error {
	st, err := js.Stream(ctx, name)
	if err != nil {
		return fmt.Errorf("find stream %s: %w", name, err)
	}
	c := st.CachedInfo().Config
	c.Metadata = maps.Clone(c.Metadata)
	if change(&c) {
		return nil
	}
	_, err = js.UpdateStream(ctx, c)
	return wrap("update stream "+name, err)
}
