package bus

// MaxPageEvents is the most relay events that one projection message may hold.
const MaxPageEvents = 128

// Page is the body of a projection message: relay events whose ordinals follow
// each other.
type Page struct {
	After  *ChainPosition // where the page claims to begin; nil if not given
	Events []RelayEvent   // 1 to MaxPageEvents
}

// First returns the first event's ordinal, Last the last one's.
func (p *Page) First() uint64 { return p.Events[0].Ordinal }

// Last returns the ordinal of the last event.
func (p *Page) Last() uint64 { return p.Events[len(p.Events)-1].Ordinal }

// ParsePage decodes a compact projection body and checks its shape: the types of
// named members, 1 to [MaxPageEvents] events, ordinals from 1 without gap or
// repetition, "after" directly before them. Digests are not validated: what lies
// at or below the session's position is skipped whatever it holds. The error is
// an *[InvalidError] with [ReasonBody] or [ReasonPage].
func ParsePage(body []byte) (Page, error) {
	var p Page
	var after, events []byte
	err := members(body, func(name string, v []byte) (bool, error) {
		switch name {
		case "after":
			after = v
		case "events":
			events = v
		default:
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return p, err
	}
	if events == nil {
		return p, invalid(ReasonBody, "events", "is missing")
	}
	// An event's digests and names alone are some 256 bytes.
	p.Events = make([]RelayEvent, 0, min(MaxPageEvents, 1+len(events)/256))
	isArray, err := Elements(events, func(v []byte) error {
		if len(p.Events) == MaxPageEvents {
			return invalid(ReasonPage, "events", "must hold 1 to %d events, holds more", MaxPageEvents)
		}
		e, err := parseRelayEvent(v)
		if err != nil {
			return err
		}
		if n := len(p.Events); n > 0 && e.Ordinal != p.Events[n-1].Ordinal+1 {
			return invalid(ReasonPage, "ordinal", "must go up by one, %d follows %d", e.Ordinal, p.Events[n-1].Ordinal)
		}
		p.Events = append(p.Events, e)
		return nil
	})
	switch {
	case err != nil:
		return p, err
	case !isArray:
		return p, invalid(ReasonBody, "events", "must be an array")
	case len(p.Events) == 0:
		return p, invalid(ReasonPage, "events", "must hold 1 to %d events, holds none", MaxPageEvents)
	}
	if after != nil {
		if p.After, err = parseAfter(after); err != nil {
			return p, err
		}
		if p.After.Ordinal != p.First()-1 {
			return p, invalid(ReasonPage, "after.ordinal", "must be the first ordinal less one, %d, not %d", p.First()-1, p.After.Ordinal)
		}
	}
	return p, nil
}

func parseAfter(v []byte) (*ChainPosition, error) {
	var at ChainPosition
	var ordinal, digest []byte
	err := membersOf(ReasonBody, "after", v, func(name string, v []byte) (bool, error) {
		switch name {
		case "ordinal":
			ordinal = v
		case "digest":
			digest = v
		default:
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return nil, err
	}
	n, ok := Int(ordinal)
	if !ok || n < 0 {
		return nil, invalid(ReasonBody, "after.ordinal", "must be an integer literal from 0 to 2^63-1")
	}
	at.Ordinal = uint64(n)
	if at.Digest, err = digestMember(ReasonBody, "after.digest", digest); err != nil {
		return nil, err
	}
	if (at.Ordinal == 0) != (at.Digest == Digest{}) {
		return nil, invalid(ReasonPage, "after", "ordinal 0 and the genesis digest of 64 zeros belong together")
	}
	return &at, nil
}

func parseRelayEvent(v []byte) (RelayEvent, error) {
	e := RelayEvent{Format: FormatChained}
	var hasTime bool
	var ordinal []byte
	err := membersOf(ReasonBody, "events", v, func(name string, v []byte) (bool, error) {
		switch name {
		case "format":
			n, ok := Int(v)
			if !ok || n != FormatChained && n != FormatStandalone {
				return true, invalid(ReasonBody, name, "must be 1 or 2")
			}
			e.Format = int(n)
		case "ordinal":
			ordinal = v
		case "previous_digest":
			if !IsString(v) {
				return true, invalid(ReasonBody, name, "must be a string")
			}
			e.Previous = v[1 : len(v)-1]
		case "digest":
			if !IsString(v) {
				return true, invalid(ReasonBody, name, "must be a string")
			}
			e.Digest = v[1 : len(v)-1]
		case "recorded_at_ms":
			var ok bool
			if e.RecordedAt, ok = Int(v); !ok {
				return true, invalid(ReasonBody, name, "must be an integer literal within int64")
			}
			hasTime = true
		case "command_id":
			switch {
			case IsString(v):
				e.CommandID = v
			case !IsNull(v):
				return true, invalid(ReasonBody, name, "must be a string or null")
			}
		case "observation":
			if !IsObject(v) {
				return true, invalid(ReasonBody, name, "must be an object")
			}
			e.Observation = v
		default:
			return false, nil
		}
		return true, nil
	})
	if err != nil {
		return e, err
	}
	if e.Ordinal, err = ordinalMember(ReasonPage, ordinal); err != nil {
		return e, err
	}
	switch {
	case e.Digest == nil:
		return e, invalid(ReasonBody, "digest", "of event %d is missing", e.Ordinal)
	case !hasTime:
		return e, invalid(ReasonBody, "recorded_at_ms", "of event %d is missing", e.Ordinal)
	case e.Observation == nil:
		return e, invalid(ReasonBody, "observation", "of event %d is missing", e.Ordinal)
	}
	return e, nil
}
