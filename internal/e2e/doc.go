// Package e2e holds the tests that meet Skald from outside: the built program as a
// process, a plain NATS client as a worker, and HTTP, the NATS service and the
// command line as readers. Nothing of it is shipped.
//
// # Field cases
//
// Each test named B… is a failure that was reported of a comparable system, told
// in the lines above it, and what Skald does instead. Where a case needs a broker
// that outlives the materializer, the test runs one of its own.
//
// # Bad input
//
// Each test named BadInput… is one door and a table of what comes through it that
// it must not take. A row says what the answer is: code and field, not only that
// there is one. What is stored nevertheless, since a worker's message is stored
// before anyone reads it, has to be listed; and a good message behind each bad
// one has to arrive.
//
// # Kills
//
// TestKill kills serve again and again while sessions publish and readers page, and
// then compares table, EVENTS, counters and all that was read with what INGEST
// must have led to. The plans of the messages (kill_plan_test.go) say what that is
// without asking the code under test. Such tests print their seed first:
// SKALD_TEST_SEED repeats one, SKALD_TEST_LONG=1 runs them at full length.
//
// # Alerts
//
// TestAlerts_Fire makes a real fault for each alert of deploy/prometheus/rules.yml, and
// has promtool evaluate the rules over what a real serve says on /metrics before and in
// it; the figures are real, and only how long they stay so is promtool's clock. At full
// length TestAlerts_Prometheus waits as long as the rules say, with a real Prometheus, for
// those that take no more than two minutes. rules_test.go compares rules, runbook and
// dashboard with each other and with a scrape, and TestDashboard_Prometheus runs the
// dashboard's queries.
//
// Tests that only read, or write into a workspace of their own, share one server
// (see main_test.go). The others start one each.
package e2e
