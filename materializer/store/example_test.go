package store_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Rows, the session's state and the INGEST position are committed together. A reader,
// of this process or of another one, pages them, and goes on from each page's cursor.
func Example() {
	ctx := context.Background()
	dir, err := os.MkdirTemp("", "skald-example-")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)
	path := filepath.Join(dir, "skald.db")
	s, err := store.Open(path, store.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer s.Close()
	if err := s.Adopt(ctx, store.Bus{Epoch: "epoch-1", IngestID: "ingest-1"}); err != nil {
		log.Fatal(err)
	}
	key := bus.Key{Workspace: "acme", Session: "build 7"}
	commit := store.Commit{
		Position: store.Position{IngestSeq: 3, IngestTime: 3_000_000, EventsSeq: 3},
		Sessions: []store.SessionWrite{{Key: key, Exists: true}},
	}
	for seq := uint64(1); seq <= 3; seq++ {
		commit.Rows = append(commit.Rows, store.Row{
			Seq: seq, Key: key, Type: bus.TypeError, RecordedAt: int64(seq), Origin: bus.Origin{Seq: seq, Time: int64(seq) * 1_000_000},
			Data: fmt.Appendf(nil, `{"message":"m%d","command_id":null}`, seq),
		})
	}
	if err := s.Commit(ctx, &commit); err != nil {
		log.Fatal(err)
	}

	r, err := store.OpenReader(path) // as skald events --data does
	if err != nil {
		log.Fatal(err)
	}
	defer r.Close()
	at := bus.Cursor{}
	for {
		p, err := r.Page(ctx, store.PageQuery{After: &at, Limit: 2, Workspace: "acme"})
		if err != nil {
			log.Fatal(err)
		}
		for _, ev := range p.Events {
			fmt.Println(ev.Seq, string(ev.Data))
		}
		at.Seq = p.NextAfter
		fmt.Println("go on after", p.NextAfter, "of", p.Latest)
		if len(p.Events) == 0 {
			break
		}
	}
	// Output:
	// 1 {"message":"m1","command_id":null}
	// 2 {"message":"m2","command_id":null}
	// go on after 2 of 3
	// 3 {"message":"m3","command_id":null}
	// go on after 3 of 3
	// go on after 3 of 3
}
