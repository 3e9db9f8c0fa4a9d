package gateway

import "time"

// Hurried returns the options with shorter times and a lower bound of streams.
func (o Options) Hurried(comment, frame, read time.Duration, streams int64) Options {
	o.commentEvery, o.frameTimeout, o.readTimeout, o.maxStreams = comment, frame, read, streams
	return o
}
