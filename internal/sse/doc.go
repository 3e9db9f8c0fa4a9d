// Package sse reads server-sent events, as the WHATWG standard says that a client reads
// them. What writes Skald's is internal/live; this knows nothing of facts.
package sse
