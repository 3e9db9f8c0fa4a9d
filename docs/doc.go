// Package docs holds no code: it is the folder of the pages for people, with tests
// that keep them true.
//
//   - contract.md: what a client has to know that speaks NATS or HTTP to Skald,
//     in whichever language. Its examples are answers of a running service; the
//     tests derive them again from the messages that the page shows, and compare
//     its names and numbers with the constants in the code.
//   - other-languages.md: how a worker and a reader put the pieces together.
//   - recovery.md: what an operator sees when something was lost, and the one command
//     to run.
package docs
