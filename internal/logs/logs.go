package logs

import (
	"fmt"
	"io"
	"log/slog"
)

// Formats of lines.
const (
	Auto = "auto" // Text on a terminal, else JSON
	Text = "text"
	JSON = "json"
)

// Handler returns what writes lines of the format to w, from the level on. terminal
// says whether w is one. The error names the formats.
func Handler(w io.Writer, format string, level slog.Level, terminal bool) (slog.Handler, error) {
	o := &slog.HandlerOptions{Level: level}
	if format == Auto {
		format = JSON
		if terminal {
			format = Text
		}
	}
	switch format {
	case Text:
		return slog.NewTextHandler(w, o), nil
	case JSON:
		return slog.NewJSONHandler(w, o), nil
	}
	return nil, fmt.Errorf("must be %s, %s or %s, not %q", Auto, Text, JSON, format)
}
