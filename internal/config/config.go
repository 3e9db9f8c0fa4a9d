package config

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/spf13/pflag"
)

const (
	// FileFlag is the flag that names the file. It is no key of the file.
	FileFlag = "config"
	// prefix begins the name of each variable.
	prefix = "SKALD_"
	// FromFlag and FromDefault are the sources that have no name of their own.
	FromFlag    = "flag"
	FromDefault = "default"
)

// ErrConfig: a variable or the file has what can not be used.
var ErrConfig = errors.New("configuration can not be used")

// configError reads as what it wraps, with the place.
type configError struct{ error }

func (c configError) Unwrap() error        { return c.error }
func (c configError) Is(target error) bool { return target == ErrConfig }

func wrong(format string, args ...any) error { return configError{fmt.Errorf(format, args...)} }

// Variable returns the name of a flag's variable.
func Variable(flag string) string {
	return prefix + strings.ToUpper(strings.ReplaceAll(flag, "-", "_"))
}

// Apply sets each flag of f that the command line has not set, from its variable or
// from the file that FileFlag or its variable names. An empty variable says nothing.
// It returns by the flags' names where their values come from: FromFlag, a variable's
// name, file:line, or FromDefault. The error is ErrConfig, with the place and the name;
// it never holds a value that was given.
func Apply(f *pflag.FlagSet) (from map[string]string, err error) {
	from = map[string]string{}
	f.VisitAll(func(flag *pflag.Flag) {
		from[flag.Name] = FromDefault
		if flag.Changed {
			from[flag.Name] = FromFlag
		}
	})
	f.VisitAll(func(flag *pflag.Flag) {
		if v := os.Getenv(Variable(flag.Name)); v != "" && !flag.Changed && err == nil {
			err = set(f, flag.Name, v, Variable(flag.Name))
			from[flag.Name] = Variable(flag.Name)
		}
	})
	if err != nil {
		return nil, err
	}
	file := f.Lookup(FileFlag)
	if file == nil || !file.Changed {
		return from, nil
	}
	entries, err := readFile(file.Value.String())
	if err != nil {
		return nil, err
	}
	for _, e := range entries {
		if _, known := from[e.key]; !known || e.key == FileFlag {
			return nil, wrong("%s: there is no key %q", e.place, e.key)
		}
		if f.Changed(e.key) {
			continue
		}
		if err := set(f, e.key, e.value, e.place); err != nil {
			return nil, err
		}
		from[e.key] = e.place
	}
	return from, nil
}

// set sets a flag. What is wrong with a value names the flag and the place: the value
// may be a secret that went to the wrong name.
func set(f *pflag.FlagSet, name, value, place string) error {
	if err := f.Set(name, value); err != nil {
		return wrong("%s: %s: must be a %s", place, name, kind(f.Lookup(name)))
	}
	return nil
}

// kind is what a flag's value has to be, in words.
func kind(flag *pflag.Flag) string {
	switch flag.Value.Type() {
	case "duration":
		return "duration like 90s or 1h30m"
	case "bool":
		return "truth value: true or false"
	case "int", "int64":
		return "whole number"
	}
	return flag.Value.Type()
}
