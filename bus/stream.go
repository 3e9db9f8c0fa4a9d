package bus

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// Contract is the version of projection and constants that the streams' metadata
// name. A store reads on only under one that it knows.
const Contract = 1

// MinServerVersion is the oldest NATS server that Skald works with.
const MinServerVersion = "2.14.0"

// Metadata keys of the streams.
const (
	MetaEpoch     = "skald.epoch"         // on both; EVENTS' counts
	MetaContract  = "skald.contract"      // on both
	MetaIngestID  = "skald.ingest_id"     // on INGEST
	MetaIDHorizon = "skald.id_horizon_ms" // on INGEST
)

const (
	// DefaultIDHorizon is how long bare event ids are known, in INGEST's time.
	DefaultIDHorizon = 7 * 24 * time.Hour
	// DefaultIngestBytes bounds INGEST unless configured, or halved as often as
	// a small disk demands, down to MinIngestBytes.
	DefaultIngestBytes = 8 << 30
	// MinIngestBytes is the smallest bound that is tried by itself.
	MinIngestBytes = 64 << 20
	// PayloadReserve is what INGEST's largest message stays below the server's
	// payload limit and MaxRecord, so that every fact derived from it fits: the
	// wire form's own members with two escaped ids, and the headers.
	PayloadReserve = 16 << 10
	// MaxRecord is the most bytes that JetStream stores for one message, subject and
	// headers included, whatever the server's payload limit (nats-server, filestore.go,
	// rlBadThresh).
	MaxRecord = 32 << 20
	// minDuplicates is the smallest window JetStream allows. Skald does not use
	// it: JetStream drops equal ids of different sessions with a success.
	minDuplicates = 100 * time.Millisecond
	// codeStorage is JetStream's "insufficient storage resources available".
	codeStorage = 10047
)

// StreamOptions are the settings that a bus is created with. Existing streams
// keep theirs.
type StreamOptions struct {
	IDHorizon   time.Duration // 0 is DefaultIDHorizon; at least 1 s
	IngestBytes int64         // 0 is DefaultIngestBytes, halved on a small disk
	MaxPayload  int64         // the server's payload limit, bytes
	Replicas    int           // 0 is 1
}

// Streams are the two streams of a bus and what their metadata say.
type Streams struct {
	Ingest   jetstream.Stream
	Events   jetstream.Stream
	Epoch    string
	IngestID string
	Horizon  time.Duration
	// Differs lists settings that are not what a new bus would have, in words.
	// They break no promise; an operator may have chosen them.
	Differs []string
}

// MaxMessage returns how many bytes, headers included, a message in INGEST may have on
// a server with this payload limit, so that EVENTS takes every fact derived from it.
func MaxMessage(payloadLimit int64) int64 { return min(payloadLimit, MaxRecord) - PayloadReserve }

// NewID returns an id for an epoch or a stream: 13 characters a-z 2-7, random.
func NewID() string { return strings.ToLower(rand.Text()[:13]) }

func (s Subjects) ingestConfig(o StreamOptions, epoch string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               s.IngestStream(),
		Description:        "what workers said",
		Subjects:           []string{s.IngestFilter()},
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		MaxBytes:           o.IngestBytes,
		MaxMsgSize:         int32(MaxMessage(o.MaxPayload)),
		Storage:            jetstream.FileStorage,
		Replicas:           o.Replicas,
		Duplicates:         minDuplicates,
		AllowAtomicPublish: true,
		Metadata: map[string]string{
			MetaEpoch:     epoch,
			MetaContract:  strconv.Itoa(Contract),
			MetaIngestID:  NewID(),
			MetaIDHorizon: strconv.FormatInt(o.IDHorizon.Milliseconds(), 10),
		},
	}
}

func (s Subjects) eventsConfig(o StreamOptions, epoch string) jetstream.StreamConfig {
	return jetstream.StreamConfig{
		Name:               s.EventsStream(),
		Description:        "what happened",
		Subjects:           []string{s.EventsFilter()},
		Retention:          jetstream.LimitsPolicy,
		Discard:            jetstream.DiscardNew,
		MaxBytes:           -1,
		MaxMsgSize:         -1,
		Storage:            jetstream.FileStorage,
		Replicas:           o.Replicas,
		Duplicates:         minDuplicates,
		AllowAtomicPublish: true,
		DenyPurge:          true, // it would look like forgotten sessions
		// The server's default of 1,000 would be a limit of readers.
		MaxConsumers: 100_000,
		Metadata: map[string]string{
			MetaEpoch:    epoch,
			MetaContract: strconv.Itoa(Contract),
		},
	}
}

// Open finds the streams of the bus, or creates those that are missing if known
// is empty. known is the epoch of a store that already belongs to a bus: then a
// missing stream is [ErrStreamMissing], since making it anew would start its
// numbers again, and another epoch is [ErrOtherBus]. Streams are never changed.
// Settings that break a promise are [ErrStreamSettings], a contract that this
// binary does not know [ErrContract]; each names the stream and what differs. A
// server or account without JetStream is [ErrNoJetStream], and a stream that another
// process is making just now, on a cluster, [ErrUnavailable].
// Safe for several processes at once: one creates, the others find.
func (s Subjects) Open(ctx context.Context, js jetstream.JetStream, o StreamOptions, known string) (Streams, error) {
	if o.IDHorizon == 0 {
		o.IDHorizon = DefaultIDHorizon
	}
	if o.Replicas == 0 {
		o.Replicas = 1
	}
	if o.IDHorizon < time.Second {
		return Streams{}, invalid("", "id horizon", "must be at least 1s")
	}
	if o.MaxPayload <= 2*PayloadReserve {
		return Streams{}, fmt.Errorf("%w: the server's payload limit is %d bytes, more than %d are needed", ErrStreamSettings, o.MaxPayload, 2*PayloadReserve)
	}
	var out Streams
	// EVENTS first: its epoch counts, and a process that dies between the two
	// leaves a stream that the next one adopts.
	epoch := NewID()
	ev, err := s.find(ctx, js, s.EventsStream(), known, func() (jetstream.Stream, error) {
		return js.CreateStream(ctx, s.eventsConfig(o, epoch))
	})
	if err != nil {
		return out, err
	}
	evCfg := ev.CachedInfo().Config
	epoch = evCfg.Metadata[MetaEpoch]
	in, err := s.find(ctx, js, s.IngestStream(), known, func() (jetstream.Stream, error) {
		return createIngest(ctx, js, s, o, epoch)
	})
	if err != nil {
		return out, err
	}
	inCfg := in.CachedInfo().Config
	out = Streams{Ingest: in, Events: ev, Epoch: epoch, IngestID: inCfg.Metadata[MetaIngestID]}
	if known != "" && epoch != known {
		return out, fmt.Errorf("%w: the store's epoch is %s, that of stream %s is %s", ErrOtherBus, known, evCfg.Name, epoch)
	}
	if err := s.Check(inCfg, evCfg); err != nil {
		return out, err
	}
	if most := MaxMessage(o.MaxPayload); inCfg.MaxMsgSize <= 0 || int64(inCfg.MaxMsgSize) > most {
		return out, fmt.Errorf("%w: stream %s: max_msg_size is %d, must be from 1 to %d (the server's payload limit, or the %d bytes that JetStream stores, less %d): a fact could be too large for EVENTS",
			ErrStreamSettings, inCfg.Name, inCfg.MaxMsgSize, most, MaxRecord, PayloadReserve)
	}
	if out.IngestID == "" {
		return out, fmt.Errorf("%w: stream %s: metadata %s is missing", ErrStreamSettings, inCfg.Name, MetaIngestID)
	}
	ms, err := strconv.ParseInt(inCfg.Metadata[MetaIDHorizon], 10, 64)
	if err != nil || ms < 1000 {
		return out, fmt.Errorf("%w: stream %s: metadata %s is %q, must be a number of ms from 1000", ErrStreamSettings, inCfg.Name, MetaIDHorizon, inCfg.Metadata[MetaIDHorizon])
	}
	out.Horizon = time.Duration(ms) * time.Millisecond
	out.Differs = differences(s.ingestConfig(o, epoch), inCfg, differences(s.eventsConfig(o, epoch), evCfg, nil))
	return out, nil
}

// find returns the stream, or makes it if the store that asks belongs to no bus.
func (s Subjects) find(ctx context.Context, js jetstream.JetStream, name, known string, create func() (jetstream.Stream, error)) (jetstream.Stream, error) {
	st, err := js.Stream(ctx, name)
	if errors.Is(err, nats.ErrNoResponders) || errors.Is(err, jetstream.ErrJetStreamNotEnabled) || errors.Is(err, jetstream.ErrJetStreamNotEnabledForAccount) {
		return nil, fmt.Errorf("find stream %s: %w: %w", name, ErrNoJetStream, err)
	}
	if err == nil || !errors.Is(err, jetstream.ErrStreamNotFound) {
		return st, wrap("find stream "+name, err)
	}
	if known != "" {
		return nil, fmt.Errorf("%w: %s, of the bus with epoch %s that this store belongs to", ErrStreamMissing, name, known)
	}
	if st, err = create(); errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
		st, err = js.Stream(ctx, name) // another process was first
	}
	// A cluster says that the name is taken before the stream of the other process
	// is there to be found.
	if errors.Is(err, jetstream.ErrStreamNotFound) {
		return nil, fmt.Errorf("create stream %s: %w: another process is making it", name, ErrUnavailable)
	}
	return st, wrap("create stream "+name, err)
}

func createIngest(ctx context.Context, js jetstream.JetStream, s Subjects, o StreamOptions, epoch string) (jetstream.Stream, error) {
	chosen := o.IngestBytes > 0
	if !chosen {
		o.IngestBytes = DefaultIngestBytes
	}
	for {
		st, err := js.CreateStream(ctx, s.ingestConfig(o, epoch))
		var api *jetstream.APIError
		if !errors.As(err, &api) || api.ErrorCode != codeStorage || chosen || o.IngestBytes/2 < MinIngestBytes {
			return st, err
		}
		o.IngestBytes /= 2
	}
}

// Check returns [ErrStreamSettings], [ErrOtherBus] or [ErrContract] if INGEST's or
// EVENTS' settings are such that a promise would not hold; it names the setting.
func (s Subjects) Check(in, ev jetstream.StreamConfig) error {
	for _, c := range []jetstream.StreamConfig{in, ev} {
		refuse := func(setting, rule string) error {
			return fmt.Errorf("%w: stream %s: %s %s", ErrStreamSettings, c.Name, setting, rule)
		}
		if v := c.Metadata[MetaEpoch]; v == "" {
			return fmt.Errorf("%w: stream %s carries no metadata %s: it is not Skald's, or of another program", ErrOtherBus, c.Name, MetaEpoch)
		}
		if v := c.Metadata[MetaContract]; v != strconv.Itoa(Contract) {
			return fmt.Errorf("%w: stream %s: metadata %s is %q, this binary knows %d", ErrContract, c.Name, MetaContract, v, Contract)
		}
		if c.Retention != jetstream.LimitsPolicy {
			return refuse("retention", "must be limits")
		}
		if c.Mirror != nil {
			return refuse("mirror", "must not be set")
		}
		if c.NoAck {
			return refuse("no_ack", "must be off: nobody could know that a message is stored")
		}
		if c.PersistMode == jetstream.AsyncPersistMode {
			return refuse("persist_mode", "must not be async: it acknowledges before it writes")
		}
		if c.AllowRollup {
			return refuse("allow_rollup_hdrs", "must be off: a publisher could remove what others said")
		}
	}
	refuse := func(c jetstream.StreamConfig, setting, rule string) error {
		return fmt.Errorf("%w: stream %s: %s %s", ErrStreamSettings, c.Name, setting, rule)
	}
	switch {
	case !slices.Contains(ev.Subjects, s.EventsFilter()):
		return refuse(ev, "subjects", "must hold "+s.EventsFilter())
	case !ev.AllowAtomicPublish:
		return refuse(ev, "allow_atomic", "must be on")
	case ev.AllowDirect:
		return refuse(ev, "allow_direct", "must be off: a lagging replica would show holes that are none")
	case ev.DenyDelete:
		return refuse(ev, "deny_delete", "must be off: forgetting a session removes its messages")
	case len(ev.Sources) > 0:
		return refuse(ev, "sources", "must be empty: only materializers write it")
	case ev.MaxMsgsPerSubject > 0:
		return refuse(ev, "max_msgs_per_subject", "must not be set")
	case len(in.Sources) == 0 && !slices.Contains(in.Subjects, s.IngestFilter()):
		return refuse(in, "subjects", "must hold "+s.IngestFilter())
	case in.Discard != jetstream.DiscardNew:
		return refuse(in, "discard", "must be new: a full stream must refuse, not drop what it acknowledged")
	case in.MaxAge > 0 || in.MaxMsgsPerSubject > 0:
		return refuse(in, "max_age and max_msgs_per_subject", "must not be set: nothing may leave before it is materialized")
	}
	return nil
}

// differences names the settings of got that are not those of want.
func differences(want, got jetstream.StreamConfig, to []string) []string {
	note := func(setting string, w, g any) {
		if w != g {
			to = append(to, fmt.Sprintf("%s: %s is %v, a new bus would have %v", got.Name, setting, g, w))
		}
	}
	note("num_replicas", want.Replicas, got.Replicas)
	note("storage", want.Storage.String(), got.Storage.String())
	note("max_msg_size", want.MaxMsgSize, got.MaxMsgSize)
	note("duplicate_window", want.Duplicates, got.Duplicates)
	note("max_age", want.MaxAge, got.MaxAge)
	if want.MaxBytes > 0 {
		note("max_bytes", want.MaxBytes, got.MaxBytes)
	}
	return to
}

func wrap(doing string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", doing, err)
}
