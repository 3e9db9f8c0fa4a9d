// Reader follows the facts of one workspace, from the first one on, and keeps its place
// in a file: run it again with the same arguments, and it goes on behind what it has shown.
//
//	go run ./examples/go/reader NATS-URL CURSOR-FILE WORKSPACE
package main
