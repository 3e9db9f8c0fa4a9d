package publisher

// Held returns what the publisher has accounted for: messages and bytes that wait
// for INGEST, and bytes of stored messages that it keeps. All are 0 when everything
// is materialized.
func (p *Publisher) Held() (messages int, bytes, kept int64) {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.budget.messages, p.budget.bytes, p.kept.Load()
}

// Crowd takes all places of messages in flight, until leave gives them back.
func (p *Publisher) Crowd() (leave func()) {
	for range maxInFlight {
		p.slots <- struct{}{}
	}
	return func() {
		for range maxInFlight {
			<-p.slots
		}
	}
}

// Chosen reports whether a message is in flight, or about to be.
func (s *Session) Chosen() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.sending != nil
}

// Deafen has the session hear no more hints.
func (s *Session) Deafen() { _ = s.sub.Unsubscribe() }
