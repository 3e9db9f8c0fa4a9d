package bus

import (
	"strings"
)

// DefaultPrefix is the subject prefix of a bus unless it is configured.
const DefaultPrefix = "skald"

// AdminToken stands for workspace and session in subjects that belong to no
// session. No id escapes to it, since = is always followed by two hex digits.
const AdminToken = "="

// Subjects builds and reads the subjects of one bus. The zero value is not
// usable; make one with [NewSubjects]. It is safe for concurrent use.
type Subjects struct {
	prefix string
}

// NewSubjects returns the subjects under prefix, "" meaning [DefaultPrefix]. A
// prefix is one token of 1 to 32 characters out of a-z 0-9 _ -, since stream
// names follow it in upper case.
func NewSubjects(prefix string) (Subjects, error) {
	if prefix == "" {
		prefix = DefaultPrefix
	}
	if len(prefix) > 32 {
		return Subjects{}, invalid("", "prefix", "is %d bytes long, at most 32 are allowed", len(prefix))
	}
	for i := 0; i < len(prefix); i++ {
		if c := prefix[i]; !plain(c) || 'A' <= c && c <= 'Z' {
			return Subjects{}, invalid("", "prefix", "must consist of a-z 0-9 _ -")
		}
	}
	return Subjects{prefix: prefix}, nil
}

// Prefix returns the first token of every subject.
func (s Subjects) Prefix() string { return s.prefix }

// IngestStream returns the name of the INGEST stream, EventsStream that of
// EVENTS, StateBucket that of the object store for what neither stream can say.
func (s Subjects) IngestStream() string { return strings.ToUpper(s.prefix) + "_INGEST" }

// EventsStream returns the name of the EVENTS stream.
func (s Subjects) EventsStream() string { return strings.ToUpper(s.prefix) + "_EVENTS" }

// StateBucket returns the name of the object store that stands beside the streams.
func (s Subjects) StateBucket() string { return strings.ToUpper(s.prefix) + "_STATE" }

// IngestFilter matches every subject of INGEST.
func (s Subjects) IngestFilter() string { return s.prefix + ".in.*.*.*" }

// EventsFilter matches every subject of EVENTS.
func (s Subjects) EventsFilter() string { return s.prefix + ".ev.*.*.*" }

// Ingest returns the subject on which a message of class for the session is
// published. It does not check the key; see [Key.Check].
func (s Subjects) Ingest(k Key, class Class) string {
	return s.prefix + ".in." + Escape(k.Workspace) + "." + Escape(k.Session) + "." + string(class)
}

// IngestAdmin returns the subject of control messages that belong to no session.
func (s Subjects) IngestAdmin() string { return s.prefix + ".in.=.=." + string(ClassControl) }

// Event returns the subject of a fact of the given type.
func (s Subjects) Event(k Key, typ string) string {
	return s.prefix + ".ev." + Escape(k.Workspace) + "." + Escape(k.Session) + "." + typ
}

// Void is the subject under which an empty message takes a number whose row is
// gone. Readers skip it.
func (s Subjects) Void() string { return s.prefix + ".ev.=.=.void" }

// Done returns the core NATS subject of the session's confirmations.
func (s Subjects) Done(k Key) string {
	return s.prefix + ".done." + Escape(k.Workspace) + "." + Escape(k.Session)
}

// ParseIngest returns the session and the class that subject names. admin is true
// for control messages that belong to no session, whose key is empty. The class
// is returned as it stands, known or not; with an unknown class the key is still
// valid. The error is an *[InvalidError] with [ReasonSubject].
func (s Subjects) ParseIngest(subject string) (k Key, class Class, admin bool, err error) {
	w, id, last, err := s.parse(subject, ".in.")
	if err != nil {
		return Key{}, "", false, err
	}
	if w == AdminToken && id == AdminToken {
		if Class(last) != ClassControl {
			return Key{}, "", false, invalid(ReasonSubject, "subject", "must be %s where it names no session", s.IngestAdmin())
		}
		return Key{}, ClassControl, true, nil
	}
	if k.Workspace, err = Unescape("workspace", w); err != nil {
		return Key{}, "", false, err
	}
	if k.Session, err = Unescape("session", id); err != nil {
		return Key{}, "", false, err
	}
	return k, Class(last), false, nil
}

// ParseEvent returns the session and the type that the subject of an EVENTS
// message names. The error is an *[InvalidError] with [ReasonSubject].
func (s Subjects) ParseEvent(subject string) (Key, string, error) {
	w, id, typ, err := s.parse(subject, ".ev.")
	if err != nil {
		return Key{}, "", err
	}
	var k Key
	if k.Workspace, err = Unescape("workspace", w); err != nil {
		return Key{}, "", err
	}
	if k.Session, err = Unescape("session", id); err != nil {
		return Key{}, "", err
	}
	return k, typ, nil
}

// parse splits prefix+kind+"a.b.c" into its three tokens.
func (s Subjects) parse(subject, kind string) (a, b, c string, err error) {
	rest, ok := strings.CutPrefix(subject, s.prefix+kind)
	if ok {
		if a, rest, ok = strings.Cut(rest, "."); ok {
			if b, c, ok = strings.Cut(rest, "."); ok && a != "" && b != "" && c != "" && !strings.Contains(c, ".") {
				return a, b, c, nil
			}
		}
	}
	return "", "", "", invalid(ReasonSubject, "subject", "must be %s%s<workspace>.<session>.<last token>", s.prefix, kind)
}
