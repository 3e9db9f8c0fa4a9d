package docs_test

import (
	"errors"
	"go/ast"
	"go/constant"
	"go/parser"
	"go/token"
	"go/types"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// named is an exported constant of a package of ours.
type named struct {
	name string
	typ  string // without its package: "Reason", "untyped int", "time.Duration"
	val  constant.Value
}

// constants reads the exported constants of one folder's package, or of some of
// its files, out of the source: what is added there is compared with the page
// without anyone having to think of it.
func constants(t *testing.T, folder string, files ...string) []named {
	t.Helper()
	fset := token.NewFileSet()
	if len(files) == 0 {
		files = []string{"*.go"}
	}
	var parsed []*ast.File
	for _, pattern := range files {
		paths, err := filepath.Glob(filepath.Join(folder, pattern))
		require.NoError(t, err)
		require.NotEmpty(t, paths, "%s in %s", pattern, folder)
		for _, p := range paths {
			if strings.HasSuffix(p, "_test.go") {
				continue
			}
			f, err := parser.ParseFile(fset, p, nil, parser.SkipObjectResolution)
			require.NoError(t, err)
			parsed = append(parsed, f)
		}
	}
	conf := types.Config{
		IgnoreFuncBodies: true,
		Importer:         arithmetic{},
		Error:            func(error) {}, // of what other packages declare; a constant without a value fails below
	}
	pkg, err := conf.Check(folder, fset, parsed, nil)
	if err != nil {
		t.Logf("%s: read without other packages: %v", folder, err)
	}
	var found []named
	for _, name := range pkg.Scope().Names() {
		c, ok := pkg.Scope().Lookup(name).(*types.Const)
		if !ok || !c.Exported() {
			continue
		}
		require.NotEqual(t, constant.Unknown, c.Val().Kind(), "%s.%s", folder, name)
		typ := types.TypeString(c.Type(), func(p *types.Package) string {
			if p == pkg {
				return ""
			}
			return p.Name()
		})
		found = append(found, named{name: name, typ: typ, val: c.Val()})
	}
	return found
}

// arithmetic stands in for the packages that constants are computed with. To read
// these, and all else that ours import, out of their source takes seconds.
type arithmetic struct{}

var errNotNeeded = errors.New("no constant needs it")

func (arithmetic) Import(path string) (*types.Package, error) {
	src, ok := map[string]string{
		"math": "package math; const (MaxInt32 = 1<<31 - 1; MaxInt64 = 1<<63 - 1)",
		"time": "package time; type Duration int64; const (Millisecond Duration = 1e6; Second = 1e3 * Millisecond; Minute = 60 * Second; Hour = 60 * Minute)",
	}[path]
	if !ok {
		return nil, errNotNeeded
	}
	fset := token.NewFileSet()
	f, err := parser.ParseFile(fset, path, src, 0)
	if err != nil {
		return nil, err
	}
	return new(types.Config).Check(path, fset, []*ast.File{f}, nil)
}
