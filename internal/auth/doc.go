// Package auth writes the NATS configuration that keeps the tenants of a bus apart,
// and the keys of everybody in it, from a short description.
//
//	account            who                    imports from SKALD
//	SKALD              materializers, edges   -; it has JetStream, the only one
//	OPERATORS          operators              all of the edge, the service and the confirmations
//	<token>=w-<name>   one worker             the edge for four classes, position, outcome, confirmations
//	<token>=r-<name>   one reader             pages and sessions, pulling from its durables
//	SYS                administrators         -
//
// Permissions on subjects of one account do not keep tenants apart: a client that may
// send a request chooses the subject of the answer, and the server publishes it there.
// Between accounts an answer comes back into the account of who asked, so nothing
// reaches what that account does not import. Workers and readers have an account each,
// not one for a workspace: else a reader could have an answer delivered to its
// workspace's INGEST subjects, pull from another reader's durable in the same way, and
// a worker could send another one's inbox an acknowledgement. Permissions within the
// accounts add nothing to that; they turn a request that nobody hears into a refusal
// that says why.
//
// Writing twice keeps keys: a seed that is there is used again, so adding a tenant
// changes nothing for the others. See docs/tenants.md for what an operator does.
package auth
