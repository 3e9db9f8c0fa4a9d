// Package gateway is Skald's HTTP door. It turns requests into queries of
// internal/api, and answers with what that returns; it adds nothing of its own
// but routes, headers and the two probes.
//
//	GET /api/v1/events          a page of events
//	GET /api/v1/sessions        a list of sessions
//	GET /api/v1/sessions/{id}   one session
//	GET /api/v1/status          positions, lags and counters
//	GET /healthz                the process answers
//	GET /readyz                 one entry a check; 503 while one fails
//	GET /                       this list, as plain text
//
// Every other answer is one JSON object, errors included:
// {"error":"…","code":"…",…}. Nothing may be cached. Session ids stand in the
// path percent-encoded, dots of "." and ".." too, since clients remove such
// segments; paths are taken as sent and never redirected.
//
// There are no tokens yet, so the gateway listens on loopback addresses alone.
package gateway
