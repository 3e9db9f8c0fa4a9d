package metrics

import (
	"bufio"
	"fmt"
	"io"
	"strconv"
	"strings"
)

// Read returns the figures of a scrape in the text format by name and labels, as they
// stand there: skald_lag_seconds, skald_check_ok{check="nats"}.
func Read(r io.Reader) (map[string]float64, error) {
	figures := map[string]float64{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		// Values of labels may have spaces; the value of the figure has none.
		i := strings.LastIndexByte(line, ' ')
		if i < 0 {
			return nil, fmt.Errorf("read figures: %q has no value", line)
		}
		v, err := strconv.ParseFloat(line[i+1:], 64)
		if err != nil {
			return nil, fmt.Errorf("read figures: %w", err)
		}
		figures[line[:i]] = v
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read figures: %w", err)
	}
	return figures, nil
}
