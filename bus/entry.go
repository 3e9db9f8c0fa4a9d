package bus

import "strconv"

// MaxDiscard is how many entries one discard may name.
const MaxDiscard = 1000

// EntryRef names a reject entry in a way that means the same in every store of a bus,
// which an entry's id does not: by the message of INGEST that it is about.
type EntryRef struct {
	Seq    uint64 // of the message; 0 if INGEST had not been read when an irregularity was found
	Time   int64  // its stored time, ns since 1970; 0 likewise
	Reason Reason
}

// AppendDiscard appends the body of a control message that discards the entries, 1 to
// [MaxDiscard]. It belongs on [Subjects.IngestAdmin].
func AppendDiscard(dst []byte, entries []EntryRef) []byte {
	dst = append(dst, `{"op":"`+string(OpDiscard)+`","entries":[`...)
	for i, e := range entries {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = strconv.AppendUint(append(dst, `{"ingest_seq":`...), e.Seq, 10)
		dst = strconv.AppendInt(append(dst, `,"ingest_time_ns":`...), e.Time, 10)
		dst = append(AppendQuoted(append(dst, `,"reason":`...), string(e.Reason)), '}')
	}
	return append(dst, "]}"...)
}

func parseEntries(v []byte) (entries []EntryRef, err error) {
	isArray := false
	if v != nil {
		isArray, err = Elements(v, func(e []byte) error {
			if len(entries) == MaxDiscard {
				return invalid(ReasonBody, "entries", "must not be more than %d", MaxDiscard)
			}
			ref, err := parseEntry(e)
			entries = append(entries, ref)
			return err
		})
	}
	if err == nil && (!isArray || len(entries) == 0) {
		err = invalid(ReasonBody, "entries", "must be an array of 1 to %d entries", MaxDiscard)
	}
	return entries, err
}

func parseEntry(v []byte) (e EntryRef, err error) {
	var seq, time, reason []byte
	err = membersOf(ReasonBody, "entries", v, func(name string, v []byte) (bool, error) {
		switch name {
		case "ingest_seq":
			seq = v
		case "ingest_time_ns":
			time = v
		case "reason":
			reason = v
		default:
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return e, err
	}
	n, seqOK := Int(seq)
	t, timeOK := Int(time)
	switch {
	case !seqOK || n < 0:
		return e, invalid(ReasonBody, "entries", "ingest_seq must be an integer from 0 to 2^63-1")
	case !timeOK || t < 0:
		return e, invalid(ReasonBody, "entries", "ingest_time_ns must be an integer from 0 to 2^63-1")
	case !IsString(reason):
		return e, invalid(ReasonBody, "entries", "reason must be a string")
	}
	return EntryRef{Seq: uint64(n), Time: t, Reason: Reason(Unquote(reason))}, nil
}
