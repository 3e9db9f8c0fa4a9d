package auth

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/nats-io/nkeys"
)

const (
	// ConfigFile is the configuration's name in the folder.
	ConfigFile = "accounts.conf"
	seedSuffix = ".nk"
	ctxSuffix  = ".json"
)

// ErrSeed: a seed that is there can not be used.
var ErrSeed = errors.New("seed")

// Report says what [Write] did. Paths are below the folder, sorted.
type Report struct {
	Made    []string // seeds of users who had none
	Kept    []string // seeds that were there
	Strange []string // seeds of users whom the description does not name (any more)
}

// Write brings the folder to what the description says: the configuration
// (ConfigFile, public keys only), and for each user a seed (.nk) and a context of the
// nats tool (.json) that names it, both of mode 0600. Seeds that are there are kept.
// Those of users who have gone are left and reported; the configuration does not admit
// them. Written files are replaced as a whole, seeds before the configuration.
func Write(dir string, d *Description) (Report, error) {
	var r Report
	abs, err := filepath.Abs(dir)
	if err != nil {
		return r, fmt.Errorf("resolve %s: %w", dir, err)
	}
	l := d.layout()
	wanted := map[string]bool{}
	for _, u := range l.users() {
		rel := filepath.Join(filepath.FromSlash(u.dir), u.name)
		wanted[rel+seedSuffix] = true
		made, err := u.key(filepath.Join(abs, rel+seedSuffix))
		if err != nil {
			return r, err
		}
		if made {
			r.Made = append(r.Made, rel+seedSuffix)
		} else {
			r.Kept = append(r.Kept, rel+seedSuffix)
		}
		if err := replace(filepath.Join(abs, rel+ctxSuffix), d.context(u, filepath.Join(abs, rel+seedSuffix)), 0o600); err != nil {
			return r, err
		}
	}
	if err := replace(filepath.Join(abs, ConfigFile), l.render(), 0o644); err != nil {
		return r, err
	}
	err = filepath.WalkDir(abs, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || filepath.Ext(path) != seedSuffix {
			return err
		}
		rel, err := filepath.Rel(abs, path)
		if err == nil && !wanted[rel] {
			r.Strange = append(r.Strange, rel)
		}
		return err
	})
	if err != nil {
		return r, fmt.Errorf("list %s: %w", dir, err)
	}
	slices.Sort(r.Made)
	slices.Sort(r.Kept)
	return r, nil
}

// key reads the user's seed, or makes it.
func (u *user) key(path string) (made bool, err error) {
	seed, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		pair, err := nkeys.CreateUser()
		if err != nil {
			return false, fmt.Errorf("make key of %s %s: %w", u.role, u.name, err)
		}
		if seed, err = pair.Seed(); err != nil {
			return false, fmt.Errorf("make key of %s %s: %w", u.role, u.name, err)
		}
		if err := replace(path, append(seed, '\n'), 0o600); err != nil {
			return false, err
		}
		u.public, err = pair.PublicKey()
		return true, err
	}
	if err != nil {
		return false, fmt.Errorf("read seed of %s %s: %w", u.role, u.name, err)
	}
	pair, err := nkeys.FromSeed(bytes.TrimSpace(seed))
	if err != nil {
		return false, fmt.Errorf("%w of %s %s in %s: %w", ErrSeed, u.role, u.name, path, err)
	}
	u.public, err = pair.PublicKey()
	if err != nil || !nkeys.IsValidPublicUserKey(u.public) {
		return false, fmt.Errorf("%w of %s %s in %s: is not a user's", ErrSeed, u.role, u.name, path)
	}
	if err := os.Chmod(path, 0o600); err != nil {
		return false, fmt.Errorf("protect seed of %s %s: %w", u.role, u.name, err)
	}
	return false, nil
}

// context returns what the nats tool and skald --context read.
func (d *Description) context(u *user, seed string) []byte {
	c := struct {
		Description string `json:"description"`
		URL         string `json:"url"`
		NKey        string `json:"nkey"`
		CA          string `json:"ca,omitempty"`
	}{u.role + " " + u.name, strings.Join(d.Servers, ","), seed, d.CA}
	text, _ := json.MarshalIndent(&c, "", "  ") // strings only
	return append(text, '\n')
}

// replace writes a file as a whole: a reader finds the old text or the new one.
func replace(path string, text []byte, mode fs.FileMode) (err error) {
	if old, err := os.ReadFile(path); err == nil && bytes.Equal(old, text) {
		return os.Chmod(path, mode)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("make directory: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), ".write-*") // mode 0600
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	defer os.Remove(f.Name()) //nolint:errcheck // it is renamed, or of no use
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Chmod(f.Name(), mode)
	}
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}
