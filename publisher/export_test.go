package publisher

// Held returns what the publisher has accounted for: messages and bytes that wait
// for INGEST, and bytes of stored messages that it keeps. All are 0 when everything
// is materialized.
func (p *Publisher) Held() (messages int, bytes, kept int64) {
	p.budget.mu.Lock()
	defer p.budget.mu.Unlock()
	return p.budget.messages, p.budget.bytes, p.kept.Load()
}
