package bus

import (
	"math"
	"strconv"
	"strings"
)

// MaxSeq is the highest number a cursor may carry: SQLite's integers are signed.
const MaxSeq = math.MaxInt64

// Cursor is a place in the order of facts: everything up to and including Seq has
// been read. Epoch is empty in a plain cursor; otherwise a reader is told with
// [ErrOtherEpoch] if numbers have changed meaning since.
type Cursor struct {
	Epoch string
	Seq   uint64
}

// ParseCursor reads "seq" or "epoch:seq", seq being decimal digits within int64.
// Anything else (a sign, a fraction, white space, an exponent) is an
// *[InvalidError] that names field.
func ParseCursor(field, s string) (Cursor, error) {
	var c Cursor
	num := s
	if epoch, after, ok := strings.Cut(s, ":"); ok {
		if epoch == "" || len(epoch) > 64 {
			return c, invalid("", field, "must be a number or epoch:number")
		}
		c.Epoch, num = epoch, after
	}
	n, err := parseDigits(num)
	if err != nil {
		return Cursor{}, invalid("", field, "must be a number from 0 to %d, or epoch:number", int64(MaxSeq))
	}
	c.Seq = n
	return c, nil
}

// String returns the cursor in the form that ParseCursor reads.
func (c Cursor) String() string {
	if c.Epoch == "" {
		return strconv.FormatUint(c.Seq, 10)
	}
	return c.Epoch + ":" + strconv.FormatUint(c.Seq, 10)
}

// parseDigits reads a decimal number within int64 that has nothing but digits.
func parseDigits(s string) (uint64, error) {
	if len(s) == 0 || len(s) > 19 {
		return 0, strconv.ErrSyntax
	}
	for i := 0; i < len(s); i++ {
		if s[i] < '0' || s[i] > '9' {
			return 0, strconv.ErrSyntax
		}
	}
	n, err := strconv.ParseUint(s, 10, 63)
	return n, err
}
