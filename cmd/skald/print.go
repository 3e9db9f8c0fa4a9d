package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode"

	"golang.org/x/term"
)

// errOutput marks that standard output could not be written.
var errOutput = errors.New("write output")

// fallbackWidth is a terminal's width where it does not say.
const fallbackWidth = 120

// printLines writes JSON texts one a line, byte for byte.
func printLines(w io.Writer, lines [][]byte) error {
	var b bytes.Buffer
	for _, l := range lines {
		b.Write(l)
		b.WriteByte('\n')
	}
	if _, err := w.Write(b.Bytes()); err != nil {
		return fmt.Errorf("%w: %w", errOutput, err)
	}
	return nil
}

// visible makes text safe for a terminal: what is not printable, control
// characters of any range and directional marks among it, is shown as an escape.
func visible(s string) string {
	s = strings.ToValidUTF8(s, "\uFFFD")
	if strings.IndexFunc(s, hidden) < 0 {
		return s
	}
	var b strings.Builder
	for _, r := range s {
		if hidden(r) {
			fmt.Fprintf(&b, `\u%04x`, r)
		} else {
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hidden(r rune) bool { return r != ' ' && !unicode.IsPrint(r) }

// clip shortens text to width characters.
func clip(s string, width int) string {
	if width < 1 {
		return ""
	}
	runes := []rune(s)
	if len(runes) <= width {
		return s
	}
	return string(runes[:width-1]) + "…"
}

// width returns how many characters fit into a line of w.
func width(w io.Writer) int {
	if f, ok := w.(*os.File); ok {
		if n, _, err := term.GetSize(int(f.Fd())); err == nil && n > 20 {
			return n
		}
	}
	return fallbackWidth
}

// table writes rows in columns, the first row being the headings. Cells are made
// visible, and lines are cut to most characters; 0 leaves them whole.
func table(w io.Writer, rows [][]string, most int) error {
	var b bytes.Buffer
	tw := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, c := range row {
			cells[i] = visible(c)
		}
		fmt.Fprintln(tw, strings.Join(cells, "\t"))
	}
	if err := tw.Flush(); err != nil {
		return fmt.Errorf("lay out table: %w", err)
	}
	for line := range strings.Lines(b.String()) {
		if line = strings.TrimRight(line, " \n"); most > 0 {
			line = clip(line, most)
		}
		if _, err := fmt.Fprintln(w, line); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
	}
	return nil
}

// indented writes a JSON text for people.
func indented(w io.Writer, text []byte) error {
	var b bytes.Buffer
	if err := json.Indent(&b, text, "", "  "); err != nil {
		return fmt.Errorf("lay out JSON: %w", err)
	}
	for line := range strings.Lines(b.String() + "\n") {
		if _, err := fmt.Fprintln(w, visible(strings.TrimSuffix(line, "\n"))); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
	}
	return nil
}

// count shows how many there are of what.
func count(n int, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return strconv.Itoa(n) + " " + many
}

// clock shows milliseconds since 1970 as a UTC time, "-" for nil.
func clock(ms *int64) string {
	if ms == nil {
		return "-"
	}
	return time.UnixMilli(*ms).UTC().Format("2006-01-02T15:04:05.000Z")
}

// orDash shows an absent text.
func orDash(s *string) string {
	if s == nil || *s == "" {
		return "-"
	}
	return *s
}
