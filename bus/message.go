package bus

import (
	"bytes"
)

// Class is the kind of an INGEST message, the last token of its subject.
type Class string

// The classes of INGEST messages.
const (
	ClassSession    Class = "session"    // the session's record
	ClassActivity   Class = "activity"   // what the session is doing now
	ClassError      Class = "error"      // an error outside the chain
	ClassProjection Class = "projection" // a page of relay events
	ClassControl    Class = "control"    // operators: forget, resync, prune
)

// Known reports whether c is a class of this contract.
func (c Class) Known() bool {
	switch c {
	case ClassSession, ClassActivity, ClassError, ClassProjection, ClassControl:
		return true
	}
	return false
}

// Text is a member that is absent, null or a string. Token is nil if absent,
// null's four bytes if null, else the string's token as sent.
type Text struct{ Token []byte }

// Set reports whether the member was present, Null whether it was null.
func (t Text) Set() bool { return t.Token != nil }

// Null reports whether the member was present and null.
func (t Text) Null() bool { return IsNull(t.Token) }

// SessionRecord is the body of a session message, {"op":"save", …}. An absent
// member leaves what is stored, null clears it.
type SessionRecord struct {
	Title      Text
	State      Text
	LastError  Text
	RecordedAt *int64 // ms; nil if absent: INGEST's stored time counts
}

// Activity is the body of an activity message.
type Activity struct {
	RecordedAt *int64
	Object     []byte // the compact activity object as sent
}

// ErrorReport is the body of an error message.
type ErrorReport struct {
	RecordedAt *int64
	Message    []byte // the string's token as sent
	CommandID  []byte // the string's token as sent, or null
}

// Control is the body of a control message.
type Control struct {
	Op      Op
	At      ChainPosition // for OpResync
	Before  uint64        // for OpPrune: rows below this number go
	Secure  bool          // for OpForget: what goes is overwritten
	Entries []EntryRef    // for OpDiscard
}

// Op is what a control message asks for.
type Op string

// The operations of control messages.
const (
	OpForget  Op = "forget"
	OpResync  Op = "resync"
	OpPrune   Op = "prune"
	OpDiscard Op = "discard"
)

// members decodes the named members of a compact body. A name that fn does not
// know is ignored; one that it knows and that occurs twice is refused.
func members(body []byte, fn func(name string, v []byte) (known bool, err error)) error {
	return membersOf(ReasonBody, "body", body, fn)
}

func membersOf(reason Reason, what string, body []byte, fn func(name string, v []byte) (known bool, err error)) error {
	var seen [8]string // more named members than any body has
	n := 0
	ok, err := Members(body, func(name string, v []byte) error {
		known, err := fn(name, v)
		if err != nil || !known {
			return err
		}
		for _, s := range seen[:n] {
			if s == name {
				return invalid(reason, name, "must not occur twice")
			}
		}
		seen[n] = name
		n++
		return nil
	})
	if err == nil && !ok {
		err = invalid(reason, what, "must be a JSON object")
	}
	return err
}

func textMember(dst *Text, name string, v []byte) error {
	if !IsString(v) && !IsNull(v) {
		return invalid(ReasonBody, name, "must be a string or null")
	}
	dst.Token = v
	return nil
}

func timeMember(dst **int64, v []byte) error {
	n, ok := Int(v)
	if !ok {
		return invalid(ReasonBody, "recorded_at_ms", "must be an integer literal within int64")
	}
	*dst = &n
	return nil
}

// CheckBody checks a compact body as its class demands, for whoever sends it. A control
// body is one of a session. The error is an *[InvalidError].
func CheckBody(class Class, body []byte) (err error) {
	switch class {
	case ClassSession:
		_, err = ParseSession(body)
	case ClassActivity:
		_, err = ParseActivity(body)
	case ClassError:
		_, err = ParseError(body)
	case ClassProjection:
		_, err = ParsePage(body)
	case ClassControl:
		_, err = ParseControl(body, false)
	default:
		err = invalid(ReasonClass, "class", "must be session, activity, error, projection or control, not %q", class)
	}
	return err
}

// ParseSession decodes a compact session body. The error is an *[InvalidError]
// with [ReasonBody] that names the member.
func ParseSession(body []byte) (SessionRecord, error) {
	var r SessionRecord
	var op []byte
	err := members(body, func(name string, v []byte) (bool, error) {
		switch name {
		case "op":
			op = v
		case "title":
			return true, textMember(&r.Title, name, v)
		case "state":
			return true, textMember(&r.State, name, v)
		case "last_error":
			return true, textMember(&r.LastError, name, v)
		case "recorded_at_ms":
			return true, timeMember(&r.RecordedAt, v)
		default:
			return false, nil
		}
		return true, nil
	})
	if err == nil && (!IsString(op) || Unquote(op) != "save") {
		err = invalid(ReasonBody, "op", `must be "save"`)
	}
	return r, err
}

// ParseActivity decodes a compact activity body.
func ParseActivity(body []byte) (Activity, error) {
	var a Activity
	err := members(body, func(name string, v []byte) (bool, error) {
		switch name {
		case "activity":
			if !IsObject(v) {
				return true, invalid(ReasonBody, name, "must be an object")
			}
			a.Object = v
		case "recorded_at_ms":
			return true, timeMember(&a.RecordedAt, v)
		default:
			return false, nil
		}
		return true, nil
	})
	if err == nil && a.Object == nil {
		err = invalid(ReasonBody, "activity", "is missing")
	}
	return a, err
}

// ParseError decodes a compact error body.
func ParseError(body []byte) (ErrorReport, error) {
	e := ErrorReport{CommandID: []byte("null")}
	err := members(body, func(name string, v []byte) (bool, error) {
		switch name {
		case "message":
			if !IsString(v) {
				return true, invalid(ReasonBody, name, "must be a string")
			}
			e.Message = v
		case "command_id":
			if !IsString(v) && !IsNull(v) {
				return true, invalid(ReasonBody, name, "must be a string or null")
			}
			e.CommandID = v
		case "recorded_at_ms":
			return true, timeMember(&e.RecordedAt, v)
		default:
			return false, nil
		}
		return true, nil
	})
	if err == nil && e.Message == nil {
		err = invalid(ReasonBody, "message", "is missing")
	}
	return e, err
}

// ParseControl decodes a compact control body. admin says that the message came
// on [Subjects.IngestAdmin], where prune and discard are known; forget and resync
// belong to a session's subject.
func ParseControl(body []byte, admin bool) (Control, error) {
	var c Control
	var op, ordinal, digest, before, entries, secure []byte
	err := members(body, func(name string, v []byte) (bool, error) {
		switch name {
		case "op":
			op = v
		case "ordinal":
			ordinal = v
		case "digest":
			digest = v
		case "before_seq":
			before = v
		case "entries":
			entries = v
		case "secure":
			secure = v
		default:
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return c, err
	}
	if IsString(op) {
		c.Op = Op(Unquote(op))
	}
	switch {
	case c.Op == OpForget && !admin:
		c.Secure, err = flagMember("secure", secure)
	case c.Op == OpResync && !admin:
		if c.At.Ordinal, err = ordinalMember(ReasonBody, ordinal); err == nil {
			c.At.Digest, err = digestMember(ReasonBody, "digest", digest)
		}
	case c.Op == OpPrune && admin:
		n, ok := Int(before)
		if !ok || n < 1 {
			return c, invalid(ReasonBody, "before_seq", "must be an integer from 1 to 2^63-1")
		}
		c.Before = uint64(n)
	case c.Op == OpDiscard && admin:
		c.Entries, err = parseEntries(entries)
	case admin:
		err = invalid(ReasonBody, "op", `must be "prune" or "discard"`)
	default:
		err = invalid(ReasonBody, "op", `must be "forget" or "resync"`)
	}
	return c, err
}

// flagMember decodes a member that may be absent, which is false.
func flagMember(name string, v []byte) (bool, error) {
	switch string(v) {
	case "", "false":
		return false, nil
	case "true":
		return true, nil
	}
	return false, invalid(ReasonBody, name, "must be true or false")
}

func ordinalMember(reason Reason, v []byte) (uint64, error) {
	n, ok := Int(v)
	if !ok || n < 1 {
		return 0, invalid(reason, "ordinal", "must be an integer literal from 1 to 2^63-1")
	}
	return uint64(n), nil
}

func digestMember(reason Reason, name string, v []byte) (Digest, error) {
	if len(v) == 66 && !bytes.ContainsRune(v, '\\') && v[0] == '"' {
		if d, ok := ParseDigest(v[1:65]); ok {
			return d, nil
		}
	}
	return Digest{}, invalid(reason, name, "must be 64 lower-case hex digits")
}
