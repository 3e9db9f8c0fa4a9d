package projection

// stopClass is what a prompt's stop reason means to readers.
type stopClass uint8

const (
	stopQuiet         stopClass = iota // finished, cancelled or out of quota: the end says it all
	stopInputRequired                  // the user is asked for something
	stopError                          // anything else
)

// classify reads a stop reason, a string token. Journals hold snake case and the
// spelling of enum variants, so _ and - and case do not count; nothing else is
// taken off.
func classify(token []byte) stopClass {
	reason := decoded(token)
	// ModelCapacity is known in this one spelling; only its case does not count.
	if len(reason) == len("modelcapacity") {
		var lower [len("modelcapacity")]byte
		for i, c := range reason {
			lower[i] = lowerASCII(c)
		}
		if string(lower[:]) == "modelcapacity" {
			return stopQuiet
		}
	}
	// Longer than any that is known. No other letter has one of these names'
	// letters as its lower case, so that ASCII is enough.
	var name [len("awaitinginput") + 1]byte
	n := 0
	for _, c := range reason {
		if c == '_' || c == '-' {
			continue
		}
		if n == len(name) {
			return stopError
		}
		name[n] = lowerASCII(c)
		n++
	}
	switch string(name[:n]) {
	case "endturn", "cancelled", "canceled", "quotalimit":
		return stopQuiet
	case "awaitinginput":
		return stopInputRequired
	}
	return stopError
}

func lowerASCII(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		return c + 'a' - 'A'
	}
	return c
}
