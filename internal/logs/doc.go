// Package logs makes the loggers of serve: text for people, JSON for machines, and not
// many lines about one trouble.
//
// [Limit] passes warnings and errors on once a second for each message, which is
// constant in Skald's code: what differs stands in attributes. The next line that is
// passed says how many were not. What is no trouble, and debugging, is not limited.
package logs
