package archtest_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

const (
	module   = "github.com/skaldbus/skald"
	maxLines = 400
	// longBecause excuses a longer file; topLines is where it must stand.
	longBecause = "// Long because: "
	topLines    = 10
)

// rule says what the packages in a folder, and in those below it, may import. Of
// the rules that apply to a package the one for the deepest folder counts.
type rule struct {
	folder string   // below the module's root
	may    []string // folders of the module, each with what is below it; the own one is allowed
	never  []string // other packages, each with what is below it
}

// rules is the table of the design's section on packages. A folder without a rule
// may import any but cmd.
var rules = []rule{
	{folder: "bus"},
	{folder: "publisher", may: []string{"bus"}},
	// The lock needs code for each system, which nobody should have twice.
	{folder: "publisher/outbox", may: []string{"bus", "internal/dirlock"}},
	{folder: "consumer", may: []string{"bus"}},
	{folder: "materializer", may: []string{"bus"}},
	{folder: "materializer/checkpoint", may: []string{"bus", "materializer/store"}},
	{folder: "materializer/registry", may: []string{"bus"}},
	{folder: "materializer/store", may: []string{"bus", "materializer/projection"}},
	{folder: "materializer/projection", may: []string{"bus"}, never: []string{
		"time", "log", "os", "io/fs", "io/ioutil", "net", "syscall", "flag",
		"math/rand", "crypto/rand", "database/sql", "context", "runtime",
		"github.com/nats-io", "github.com/synadia-io", "go.opentelemetry.io", "modernc.org", "golang.org/x/sys", "github.com/google/uuid",
	}},
	{folder: "internal/natsd"},
	{folder: "internal/dirlock"},
	{folder: "internal/natsconn", may: []string{"bus"}},
	{folder: "internal/edge", may: []string{"bus"}},
	{folder: "internal/sdnotify"},
	{folder: "internal/auth", may: []string{"bus"}},
}

// only says which folder alone imports a library, or what is below it: what measures
// tells an interface, and need not know who listens.
var only = map[string]string{
	"github.com/prometheus":              "internal/metrics",
	"go.opentelemetry.io/otel/sdk":       "internal/tracing",
	"go.opentelemetry.io/otel/exporters": "internal/tracing",
}

// file is what the rules need to know of a Go file.
type file struct {
	path    string // below the root, with slashes
	folder  string
	test    bool
	lines   int
	excused bool
	init    bool
	imports []string
}

// read reads the Go files below root, but for modules of their own, folders that
// the go command ignores, test data, and folders of which git tracks nothing: what
// someone tries out is not the module's. Without git all folders count.
func read(root string) ([]file, error) {
	var files []file
	known := tracked(root)
	err := filepath.WalkDir(root, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() {
			if p == root {
				return nil
			}
			if name == "testdata" || name == "vendor" || strings.HasPrefix(name, ".") || strings.HasPrefix(name, "_") {
				return fs.SkipDir
			}
			if _, err := os.Stat(filepath.Join(p, "go.mod")); err == nil {
				return fs.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		rel, err := filepath.Rel(root, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		if known != nil && !known[path.Dir(rel)] {
			return nil
		}
		f, err := parse(p, rel)
		files = append(files, f)
		return err
	})
	return files, err
}

func parse(p, rel string) (file, error) {
	f := file{path: rel, folder: path.Dir(rel), test: strings.HasSuffix(rel, "_test.go")}
	src, err := os.ReadFile(p)
	if err != nil {
		return f, err
	}
	f.lines = bytes.Count(src, []byte("\n"))
	for i, line := range strings.SplitN(string(src), "\n", topLines+1) {
		f.excused = f.excused || i < topLines && strings.HasPrefix(line, longBecause) && strings.TrimSpace(line) != strings.TrimSpace(longBecause)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), p, src, parser.SkipObjectResolution)
	if err != nil {
		return f, err
	}
	for _, d := range parsed.Decls {
		if fn, ok := d.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
			f.init = true
		}
	}
	for _, i := range parsed.Imports {
		name, err := strconv.Unquote(i.Path.Value)
		if err != nil {
			return f, err
		}
		f.imports = append(f.imports, name)
	}
	return f, nil
}

// check returns what breaks the rules, one line each, sorted.
func check(files []file) []string {
	var broken []string
	report := func(format string, args ...any) { broken = append(broken, fmt.Sprintf(format, args...)) }
	documented := map[string]bool{}
	for _, f := range files {
		documented[f.folder] = documented[f.folder] || path.Base(f.path) == "doc.go"
	}
	for folder, ok := range documented {
		if !ok {
			report("%s: has no doc.go", folder)
		}
	}
	for _, f := range files {
		if f.lines > maxLines && !f.excused {
			report("%s: has %d lines, more than %d need a line %q at the top", f.path, f.lines, maxLines, longBecause+"…")
		}
		if f.test {
			continue
		}
		if f.init {
			report("%s: declares func init", f.path)
		}
		for _, name := range f.imports {
			if why := forbidden(f.folder, name); why != "" {
				report("%s: imports %s: %s", f.path, name, why)
			}
		}
	}
	slices.Sort(broken)
	return broken
}

// forbidden says why a package in folder may not import name; "" if it may.
func forbidden(folder, name string) string {
	own, ours := strings.CutPrefix(name, module+"/")
	if ours && under(own, "cmd") && !under(folder, "cmd") {
		return "nothing imports a command"
	}
	if ours && under(own, "internal/skaldtest") && !under(folder, "internal/skaldtest") {
		return "only tests use test helpers"
	}
	for library, home := range only {
		if under(name, library) && !under(folder, home) {
			return "only " + home + " imports it"
		}
	}
	r, ok := ruleOf(folder)
	if !ok {
		return ""
	}
	if !ours {
		for _, never := range r.never {
			if under(name, never) {
				return r.folder + " must not depend on it"
			}
		}
		return ""
	}
	for _, may := range append([]string{r.folder}, r.may...) {
		if under(own, may) {
			return ""
		}
	}
	return fmt.Sprintf("%s may import of this module only %v", r.folder, r.may)
}

func ruleOf(folder string) (deepest rule, ok bool) {
	for _, r := range rules {
		if under(folder, r.folder) && len(r.folder) > len(deepest.folder) {
			deepest, ok = r, true
		}
	}
	return deepest, ok
}

// under reports whether the slash-separated name is folder or below it.
func under(name, folder string) bool {
	return name == folder || strings.HasPrefix(name, folder+"/")
}
