package config

import (
	"fmt"
	"io"
	"os"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/parser"
)

// maxFile bounds the file, in bytes.
const maxFile = 1 << 20

// entry is one line of the file.
type entry struct {
	key, value string
	place      string // file:line
}

// readFile reads a YAML file that is one mapping of keys to single values. The values
// are taken as they are written, so that a password of digits stays what it is.
func readFile(path string) ([]entry, error) {
	text, err := read(path)
	if err != nil {
		return nil, wrong("read configuration: %w", err)
	}
	// The parser's own error quotes lines of the file, which may be secret.
	file, err := parser.ParseBytes(text, 0)
	if err != nil {
		return nil, wrong("%s: must be YAML, keys with values, no key twice", path)
	}
	if len(file.Docs) > 1 {
		return nil, wrong("%s: must be one document, not %d", path, len(file.Docs))
	}
	var entries []entry
	for _, doc := range file.Docs {
		if doc.Body == nil {
			continue
		}
		values, err := pairs(path, doc.Body)
		if err != nil {
			return nil, err
		}
		for _, v := range values {
			e := entry{key: v.Key.GetToken().Value, place: fmt.Sprintf("%s:%d", path, v.Key.GetToken().Position.Line)}
			var ok bool
			if e.value, ok = scalar(v.Value); !ok {
				return nil, wrong("%s: %s: must be a single value", e.place, e.key)
			}
			entries = append(entries, e)
		}
	}
	return entries, nil
}

func read(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err == nil && len(text) > maxFile {
		err = fmt.Errorf("%s: is larger than %d bytes", path, maxFile)
	}
	return text, err
}

// pairs returns the entries of a mapping.
func pairs(path string, body ast.Node) ([]*ast.MappingValueNode, error) {
	switch n := body.(type) {
	case *ast.MappingNode:
		return n.Values, nil
	case *ast.MappingValueNode:
		return []*ast.MappingValueNode{n}, nil
	case *ast.CommentGroupNode:
		return nil, nil
	}
	return nil, wrong("%s: must be keys with values", path)
}

// scalar returns a single value as it is written, without quotes.
func scalar(n ast.Node) (string, bool) {
	switch n := n.(type) {
	case *ast.StringNode:
		return n.Value, true
	case *ast.LiteralNode:
		return n.Value.Value, true
	case *ast.IntegerNode, *ast.FloatNode, *ast.BoolNode:
		return n.GetToken().Value, true
	}
	return "", false
}
