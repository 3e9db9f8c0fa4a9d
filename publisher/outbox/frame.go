package outbox

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
)

const (
	magic     = "skob"
	frameHead = len(magic) + 8
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// appendFrame appends the frame of a payload.
func appendFrame(dst, payload []byte) []byte {
	dst = append(dst, magic...)
	dst = binary.LittleEndian.AppendUint32(dst, uint32(len(payload)))
	dst = binary.LittleEndian.AppendUint32(dst, crc32.Checksum(payload, castagnoli))
	return append(dst, payload...)
}

// readFrame returns the payload of the frame at the beginning of b and how long the
// frame is. ok is false if there is none, or not all of it.
func readFrame(b []byte) (payload []byte, size int, ok bool) {
	if len(b) < frameHead || string(b[:len(magic)]) != magic {
		return nil, 0, false
	}
	n := binary.LittleEndian.Uint32(b[len(magic):])
	sum := binary.LittleEndian.Uint32(b[len(magic)+4:])
	if uint64(n) > uint64(len(b)-frameHead) {
		return nil, 0, false
	}
	payload = b[frameHead : frameHead+int(n)]
	return payload, frameHead + int(n), crc32.Checksum(payload, castagnoli) == sum
}

// anyFrame reports whether a whole frame stands anywhere in b.
func anyFrame(b []byte) bool {
	for {
		i := bytes.Index(b, []byte(magic))
		if i < 0 {
			return false
		}
		if _, _, ok := readFrame(b[i:]); ok {
			return true
		}
		b = b[i+1:]
	}
}
