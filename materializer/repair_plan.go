package materializer

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/nats-io/nats.go/jetstream"
)

// PlanFile is the name, in a data directory, of what a repair has written down.
const PlanFile = "repair.json"

// ErrRepairPending: a repair was begun and did not end.
var ErrRepairPending = errors.New("a repair was begun and has not ended")

// repairPlan is what a repair writes down before it changes anything. Only the epoch
// is needed to go on: all else is found out again from table and EVENTS.
type repairPlan struct {
	Action     RepairAction `json:"action"`
	Epoch      string       `json:"epoch"` // of the numbers when it has ended
	OldEpoch   string       `json:"old_epoch"`
	From       uint64       `json:"from,omitempty"` // the first number that differed
	EventsLast uint64       `json:"events_last"`
	// Like are the settings of the EVENTS that a rebuild deletes: nobody else has them
	// between that and making it again.
	Like *jetstream.StreamConfig `json:"like,omitempty"`
}

// PendingRepair returns ErrRepairPending if a repair of the data directory was cut
// short: a materializer must not run before it has ended.
func PendingRepair(dir string) error {
	p, err := readPlan(filepath.Join(dir, PlanFile))
	if err != nil || p == nil {
		return err
	}
	return fmt.Errorf("%w: %s", ErrRepairPending, p.Action)
}

// readPlan returns nil if there is none.
func readPlan(path string) (*repairPlan, error) {
	b, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("read repair plan: %w", err)
	}
	var p repairPlan
	if err := json.Unmarshal(b, &p); err != nil {
		return nil, fmt.Errorf("read repair plan %s: %w", path, err)
	}
	return &p, nil
}

// writePlan makes the plan durable under its name, whole or not at all.
func writePlan(path string, p repairPlan) error {
	b, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode repair plan: %w", err)
	}
	f, err := os.CreateTemp(filepath.Dir(path), "repair-*.tmp")
	if err != nil {
		return fmt.Errorf("write repair plan: %w", err)
	}
	defer os.Remove(f.Name())
	_, err = f.Write(append(b, '\n'))
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err == nil {
		err = syncDir(filepath.Dir(path))
	}
	if err != nil {
		return fmt.Errorf("write repair plan: %w", err)
	}
	return nil
}

func removePlan(path string) error {
	if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove repair plan: %w", err)
	}
	return syncDir(filepath.Dir(path))
}

// syncDir makes a change of names in the directory durable.
func syncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	// Some systems can not sync a directory, and need not.
	_ = d.Sync()
	return d.Close()
}
