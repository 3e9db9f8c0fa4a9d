package demo

import "time"

// PlayedNow returns a step's body as it is said.
func PlayedNow(s Step) string { return s.at(time.Now()) }
