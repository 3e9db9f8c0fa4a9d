// Package metrics turns what the parts of serve count and measure into figures for
// Prometheus, on a registry of its own.
//
// [New] makes the figures that are told: a [Metrics] is the materializer's observer.
// [Metrics.Add] adds those that are asked for at each scrape, from a [Sources]. Nothing
// is asked of the NATS server for a scrape: what the server knows, the materializer's
// watcher has asked some seconds ago. The store is asked, within a bound of time; what
// it does not answer is left out, and skald_store_readable says so.
//
// All names begin with skald_ and end in their unit. Labels have values from fixed
// lists: outcomes, reasons, checks. No session, workspace or event id is ever one.
//
// Counters begin at 0 with the process. Nothing else of the module imports the
// Prometheus client; a test keeps it so.
package metrics
