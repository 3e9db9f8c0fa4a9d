package access

import (
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/skaldbus/skald/bus"
)

const (
	// prefix lets secret scanners know a token.
	prefix = "skald_"
	// secretBytes is how many random bytes a token has.
	secretBytes = 32
	// maxToken bounds what is hashed, in bytes.
	maxToken = 256
	// maxName bounds a token's name, in bytes.
	maxName = 64
	// maxWorkspaces bounds a scope: its workspaces are looked at one by one.
	maxWorkspaces = 1000
)

// ErrFile: the file of tokens can not be read, or a line of it breaks a rule.
var ErrFile = errors.New("file of tokens")

// Line is a line of the file of tokens.
type Line struct {
	Name       string   `json:"name"`
	SHA256     string   `json:"sha256"`
	All        bool     `json:"all,omitempty"`
	Workspaces []string `json:"workspaces,omitempty"`
}

// New makes a token and the line that admits it. All workspaces are meant if none is
// named. The error is a *[bus.InvalidError] if the name or a workspace breaks a rule.
func New(name string, workspaces []string) (token string, line []byte, err error) {
	secret := make([]byte, secretBytes)
	_, _ = rand.Read(secret) // it never fails
	token = prefix + base64.RawURLEncoding.EncodeToString(secret)
	sum := sha256.Sum256([]byte(token))
	l := Line{Name: name, SHA256: hex.EncodeToString(sum[:]), All: len(workspaces) == 0, Workspaces: workspaces}
	if err := l.check(); err != nil {
		return "", nil, err
	}
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(&l); err != nil {
		return "", nil, fmt.Errorf("encode token %s: %w", name, err)
	}
	return token, bytes.TrimSpace(b.Bytes()), nil
}

func invalid(field, rule string, args ...any) error {
	return &bus.InvalidError{Field: field, Rule: fmt.Sprintf(rule, args...)}
}

func (l *Line) check() error {
	if l.Name == "" || len(l.Name) > maxName || strings.ContainsFunc(l.Name, func(r rune) bool { return r < ' ' || r > '~' }) {
		return invalid("name", "must be 1 to %d printable ASCII characters", maxName)
	}
	if sum, err := hex.DecodeString(l.SHA256); err != nil || len(sum) != sha256.Size {
		return invalid("sha256", "must be 64 hexadecimal digits")
	}
	switch {
	case l.All && len(l.Workspaces) > 0:
		return invalid("workspaces", "can not be listed beside all")
	case !l.All && len(l.Workspaces) == 0:
		return invalid("workspaces", "must list the workspaces, or all must be true")
	case len(l.Workspaces) > maxWorkspaces:
		return invalid("workspaces", "are %d, at most %d are allowed", len(l.Workspaces), maxWorkspaces)
	}
	for _, w := range l.Workspaces {
		if err := bus.CheckID("workspaces", w); err != nil {
			return err
		}
	}
	return nil
}

// Check reports what is wrong with the text of a file of tokens, as ErrFile.
func Check(text []byte) error {
	if _, err := parse(text); err != nil {
		return fmt.Errorf("%w: %w", ErrFile, err)
	}
	return nil
}

// parse reads a file of tokens. The error names the line.
func parse(text []byte) ([]entry, error) {
	var entries []entry
	n := 0
	for line := range bytes.Lines(text) {
		n++
		line = bytes.TrimSpace(line)
		if len(line) == 0 || line[0] == '#' {
			continue
		}
		var l Line
		d := json.NewDecoder(bytes.NewReader(line))
		d.DisallowUnknownFields()
		err := d.Decode(&l)
		if err == nil {
			if _, more := d.Token(); !errors.Is(more, io.EOF) {
				err = invalid("line", "must be one JSON object")
			}
		}
		if err == nil {
			err = l.check()
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		e := entry{grant: &Grant{Name: l.Name, revoked: make(chan struct{})}}
		_, _ = hex.Decode(e.sum[:], []byte(l.SHA256)) // checked
		if !l.All {
			slices.Sort(l.Workspaces)
			e.grant.Workspaces = slices.Compact(l.Workspaces)
		}
		for _, other := range entries {
			if other.sum == e.sum || other.grant.Name == l.Name {
				return nil, fmt.Errorf("line %d: %w", n, invalid("name", "%q, or its token, occurs a second time", l.Name))
			}
		}
		entries = append(entries, e)
	}
	return entries, nil
}
