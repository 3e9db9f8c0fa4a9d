// Package gateway is Skald's HTTP door. It turns requests into queries of internal/api
// and answers with what that returns, and sends the live streams of internal/live; it
// adds routes, headers, access and the probes.
//
//	GET  /api/v1/events          a page of events, or a live stream of them
//	GET  /api/v1/sessions        a list of sessions
//	GET  /api/v1/sessions/{id}   one session
//	GET  /api/v1/status          positions, lags and counters
//	GET  /api/v1/openapi.json    all of this, described
//	POST /api/v1/login, /logout  a cookie for a token, for browsers
//	GET  /healthz                the process answers
//	GET  /readyz                 one entry a check; 503 while one fails
//	GET  /                       the live page to browsers, else this list
//	GET  /page/{file}            what the page is made of
//
// Every answer but streams, the page and the list is one JSON object, errors included:
// {"error":"…","code":"…",…}. Nothing but the page's files may be cached. Session ids stand in the
// path percent-encoded, dots of "." and ".." too, since clients remove such
// segments; paths are taken as sent and never redirected.
//
// # Access
//
// Without tokens the gateway listens on loopback addresses, and answers requests for
// such hosts, so that a page of another site whose name was made to lead here gets
// nothing. With tokens (internal/access) a request has a grant, or is refused; what the
// grant does not cover is as if it were not there, since queries run within it.
//
// # Live streams
//
// stream.go follows the hub and writes frames, each with a deadline (writer.go). To an
// EventSource any status but 200 is final, so only what will not get better has one.
// Streams end first when the gateway stops: everything else waits for its answer.
//
// # The page
//
// page.go serves the files in page/: HTML, style sheets and ES modules as they are, with
// nothing to build. The page asks the same API as everyone else. main.js reads up to the
// table's end, then lists the sessions (fleet.js), then follows the stream from that end
// on (stream.js): a fact at or below a session's last number is in its record already,
// one above it is folded in, so nothing is missed or counted twice. history.js does the
// same for the facts of one session. list.js has only the rows in the document that can
// be seen. Whatever workers send is set as text, and a strict policy forbids anything
// else.
package gateway
