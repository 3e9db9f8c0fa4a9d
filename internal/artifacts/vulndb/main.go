// Command vulndb makes a database for `govulncheck -db file://DIR` of the module
// golang.org/x/vulndb, for machines that reach a Go module proxy and not vuln.go.dev:
//
//	go run ./vulndb DIR [VERSION]
//
// Without a version it takes the newest that the proxy has.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"time"
)

// entry is what is read of an advisory in the OSV format.
type entry struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Aliases  []string  `json:"aliases,omitempty"`
	Affected []struct {
		Package struct{ Name string }
		Ranges  []struct{ Events []struct{ Fixed string } }
	} `json:"affected,omitempty"`
}

// moduleVuln names an advisory in the index of modules.
type moduleVuln struct {
	ID       string    `json:"id"`
	Modified time.Time `json:"modified"`
	Fixed    string    `json:"fixed,omitempty"`
}

// module is a line of the index of modules.
type module struct {
	Path  string       `json:"path"`
	Vulns []moduleVuln `json:"vulns"`
}

func main() {
	if len(os.Args) < 2 || len(os.Args) > 3 {
		fmt.Fprintln(os.Stderr, "usage: vulndb DIR [VERSION]")
		os.Exit(2)
	}
	version := "latest"
	if len(os.Args) == 3 {
		version = os.Args[2]
	}
	if err := run(os.Args[1], version); err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
}

func run(dir, version string) error {
	out, err := exec.Command("go", "mod", "download", "-json", "golang.org/x/vulndb@"+version).Output()
	var got struct{ Dir, Version, Error string }
	if jsonErr := json.Unmarshal(out, &got); jsonErr != nil || got.Error != "" {
		return fmt.Errorf("download golang.org/x/vulndb: %w", errors.Join(err, jsonErr, errors.New(got.Error)))
	}
	files, err := filepath.Glob(filepath.Join(got.Dir, "data", "osv", "*.json"))
	if err != nil || len(files) == 0 {
		return fmt.Errorf("no advisories in %s: %w", got.Version, err)
	}
	for _, sub := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(dir, sub), 0o755); err != nil {
			return fmt.Errorf("make the database: %w", err)
		}
	}
	var newest time.Time
	var all []entry
	modules := map[string]*module{}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return fmt.Errorf("read advisory: %w", err)
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("read advisory %s: %w", filepath.Base(file), err)
		}
		if err := os.WriteFile(filepath.Join(dir, "ID", e.ID+".json"), text, 0o644); err != nil {
			return fmt.Errorf("write advisory: %w", err)
		}
		for path, fixed := range e.fixed() {
			if modules[path] == nil {
				modules[path] = &module{Path: path}
			}
			modules[path].Vulns = append(modules[path].Vulns, moduleVuln{e.ID, e.Modified, fixed})
		}
		if e.Modified.After(newest) {
			newest = e.Modified
		}
		e.Affected = nil
		all = append(all, e)
	}
	var list []*module
	for _, path := range slices.Sorted(maps.Keys(modules)) {
		list = append(list, modules[path])
	}
	for name, v := range map[string]any{"db": map[string]time.Time{"modified": newest}, "modules": list, "vulns": all} {
		text, err := json.Marshal(v)
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, "index", name+".json"), text, 0o644)
		}
		if err != nil {
			return fmt.Errorf("write index of %s: %w", name, err)
		}
	}
	fmt.Printf("%d advisories of %d modules, golang.org/x/vulndb %s\n", len(all), len(modules), got.Version)
	return nil
}

// fixed returns by module the version that has the fix, "" if there is none. Of several
// the last named stands: it is for people to read.
func (e entry) fixed() map[string]string {
	out := map[string]string{}
	for _, a := range e.Affected {
		if _, ok := out[a.Package.Name]; !ok {
			out[a.Package.Name] = ""
		}
		for _, r := range a.Ranges {
			for _, ev := range r.Events {
				if ev.Fixed != "" {
					out[a.Package.Name] = ev.Fixed
				}
			}
		}
	}
	return out
}
