package projection

import (
	"encoding/binary"
	"fmt"
)

// decoder reads what the encoding of a part holds, one value after the other.
// After the first fault every value is zero; err tells it.
type decoder struct {
	in  []byte
	err error
}

func (d *decoder) fail(rule string) {
	if d.err == nil {
		d.err = fmt.Errorf("%w: %s", ErrEncoding, rule)
	}
	d.in = nil
}

// end returns the first fault. What is left over is one too.
func (d *decoder) end() error {
	if d.err == nil && len(d.in) > 0 {
		d.fail("there is more than expected")
	}
	return d.err
}

// form reads the version and checks that it is known.
func (d *decoder) form(known byte) {
	if v := d.byte(); v != known {
		d.fail(fmt.Sprintf("form %d, this version reads %d", v, known))
	}
}

func (d *decoder) byte() byte {
	if len(d.in) == 0 {
		d.fail("it is cut off")
		return 0
	}
	v := d.in[0]
	d.in = d.in[1:]
	return v
}

func (d *decoder) bytes(to []byte) {
	if len(d.in) < len(to) {
		d.fail("it is cut off")
		return
	}
	copy(to, d.in)
	d.in = d.in[len(to):]
}

func (d *decoder) uint() uint64 {
	v, n := binary.Uvarint(d.in)
	if n <= 0 {
		d.fail("a number is cut off or too large")
		return 0
	}
	d.in = d.in[n:]
	return v
}

func (d *decoder) int() int64 {
	v, n := binary.Varint(d.in)
	if n <= 0 {
		d.fail("a number is cut off or too large")
		return 0
	}
	d.in = d.in[n:]
	return v
}

// length reads the length of a list that has a bound.
func (d *decoder) length(most int) int {
	n := d.uint()
	if n > uint64(most) {
		d.fail(fmt.Sprintf("a list holds %d, at most %d are allowed", n, most))
		return 0
	}
	return int(n)
}

func (d *decoder) string() string {
	n := d.uint()
	if n > uint64(len(d.in)) {
		d.fail("a string is cut off")
		return ""
	}
	v := string(d.in[:n])
	d.in = d.in[n:]
	return v
}
