package consumer

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"log/slog"
	"slices"

	"github.com/skaldbus/skald/bus"
)

// maxTypes bounds the filters of one consumer: the server walks the list for each
// message, and long ones are known to be slow.
const maxTypes = 32

// Options say which events a consumer reads, from where, and who remembers how far.
type Options struct {
	// Subjects are those of the bus. Required.
	Subjects bus.Subjects
	// Durable names the position that the server keeps for this reader: any id
	// as [bus.CheckID] allows. Defaults to none: the consumer is ephemeral, and
	// its caller remembers how far it came.
	Durable string
	// From is behind what to begin, and wins over a durable's position in both
	// directions. With an epoch it is refused if numbers have changed meaning
	// since. Number 0 is the beginning of what EVENTS holds. Defaults to nil: the
	// durable's position; for a new durable or none, the beginning.
	From *bus.Cursor
	// Logger hears of interruptions. Defaults to discarding.
	Logger *slog.Logger
	// Newest begins with what comes next instead of at the beginning, where
	// neither From nor a durable's position says otherwise.
	Newest bool
	// Session is the one session to read, of Workspace. Defaults to all.
	Session string
	// Types are the types of events to read, 32 at most; unknown ones are fine.
	// Defaults to all.
	Types []string
	// Workspace is the one workspace to read. Defaults to all.
	Workspace string
}

func (o Options) withDefaults() Options {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	o.Types = slices.Clone(o.Types)
	slices.Sort(o.Types)
	o.Types = slices.Compact(o.Types)
	if o.From != nil {
		from := *o.From
		o.From = &from
	}
	return o
}

// validate returns a *bus.InvalidError that names the field and the rule.
func (o Options) validate() error {
	refuse := func(field, rule string, args ...any) error {
		return &bus.InvalidError{Field: field, Rule: fmt.Sprintf(rule, args...)}
	}
	if o.Subjects.Prefix() == "" {
		return refuse("subjects", "must be given")
	}
	for _, id := range []struct{ field, value string }{
		{"durable", o.Durable}, {"workspace", o.Workspace}, {"session", o.Session},
	} {
		if id.value == "" {
			continue
		}
		if err := bus.CheckID(id.field, id.value); err != nil {
			return err
		}
	}
	switch {
	case o.From != nil && o.From.Seq > bus.MaxSeq:
		return refuse("from", "must be at most %d", uint64(bus.MaxSeq))
	case o.From != nil && o.Newest:
		return refuse("newest", "must not be set beside from")
	case len(o.Types) > maxTypes:
		return refuse("types", "are %d, at most %d are allowed", len(o.Types), maxTypes)
	}
	for _, typ := range o.Types {
		if typ == "" || len(typ) > 64 || bus.Escape(typ) != typ {
			return refuse("types", "must each be 1 to 64 characters of A-Z a-z 0-9 _ -, not %q", typ)
		}
	}
	return nil
}

// filters returns the subjects of the events to read. Ids are escaped and types
// checked, so no value is a wildcard, and no two filters overlap.
func (o Options) filters() []string {
	if o.Workspace == "" && o.Session == "" && len(o.Types) == 0 {
		return []string{o.Subjects.EventsFilter()}
	}
	workspace, session := "*", "*"
	if o.Workspace != "" {
		workspace = bus.Escape(o.Workspace)
	}
	if o.Session != "" {
		session = bus.Escape(o.Session)
	}
	stem := o.Subjects.Prefix() + ".ev." + workspace + "." + session + "."
	if len(o.Types) == 0 {
		return []string{stem + "*"}
	}
	out := make([]string, 0, len(o.Types))
	for _, typ := range o.Types {
		out = append(out, stem+typ)
	}
	return out
}

const (
	// leaseSuffix follows a durable's name in that of its lease. No escaped name
	// ends like that, since = is followed there by two upper-case hex digits.
	leaseSuffix = "=lease"
	// maxName is the longest consumer name that NATS allows, less the suffix.
	maxName = 255 - len(leaseSuffix)
)

// DurableName returns the name of the JetStream consumer that keeps the position
// of Options.Durable: its id escaped like those in subjects, and cut off and
// followed by a hash where that would be longer than NATS allows. The lease beside
// it has this name with "=lease" behind it. Operators need both names to look at a
// reader or to give it permissions.
func DurableName(durable string) string {
	name := bus.Escape(durable)
	if len(name) <= maxName {
		return name
	}
	sum := sha256.Sum256([]byte(durable))
	// The = keeps it apart from any short name, as above.
	hash := "=h" + hex.EncodeToString(sum[:16])
	return name[:maxName-len(hash)] + hash
}
