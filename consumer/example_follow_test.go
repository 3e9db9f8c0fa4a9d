package consumer_test

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"time"

	_ "modernc.org/sqlite"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/consumer"
)

// A follower begins with everything that the table has and goes on live. Its place
// is kept in a file: the second time it goes on with what was not handled.
func ExampleFollow() {
	js, subjects, done := exampleBus()
	defer done()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	dir, err := os.MkdirTemp("", "skald-example")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	place := consumer.NewFileCursor(filepath.Join(dir, "cursor"))

	for _, last := range []uint64{2, 3} {
		f, err := consumer.Follow(js, consumer.FollowOptions{
			Subjects: subjects, Workspace: "acme", From: &bus.Cursor{}, Store: place,
		})
		if err != nil {
			fmt.Println(err)
			return
		}
		for ev, err := range f.Events(ctx) {
			if err != nil {
				fmt.Println(err)
				return
			}
			fmt.Printf("%d %s %s\n", ev.Seq, ev.Session, ev.Data)
			if ev.Seq == last {
				break // this one counts as not handled
			}
		}
		fmt.Println("handled up to", f.Cursor().Seq)
	}
	// Output:
	// 1 build 7 {"message":"no space","command_id":null}
	// 2 build 7 {"message":"still no space","command_id":null}
	// handled up to 1
	// 2 build 7 {"message":"still no space","command_id":null}
	// 3 build 7 {"message":"gave up","command_id":null}
	// handled up to 2
}

// The cursor is committed with the work on the event, so each event has its effect
// exactly once, also when the process crashes at any moment.
func ExampleSQLCursor_SaveIn() {
	js, subjects, done := exampleBus()
	defer done()
	ctx, stop := context.WithTimeout(context.Background(), 30*time.Second)
	defer stop()
	check := func(err error) {
		if err != nil {
			panic(err)
		}
	}
	db, err := sql.Open("sqlite", ":memory:")
	check(err)
	defer db.Close()
	db.SetMaxOpenConns(1) // a database in memory belongs to its connection
	_, err = db.ExecContext(ctx, "CREATE TABLE alarms (seq BIGINT PRIMARY KEY, text TEXT)")
	check(err)
	cursor, err := consumer.NewSQLCursor(db, consumer.SQLCursorOptions{Name: "alarms"})
	check(err)
	check(cursor.Create(ctx))
	from, err := cursor.Load(ctx)
	check(err)
	if from == nil {
		from = &bus.Cursor{} // the first time: everything
	}

	f, err := consumer.Follow(js, consumer.FollowOptions{Subjects: subjects, From: from})
	check(err)
	for ev, err := range f.Events(ctx) {
		check(err)
		tx, err := db.BeginTx(ctx, nil)
		check(err)
		_, err = tx.ExecContext(ctx, "INSERT INTO alarms VALUES ($1, $2)", int64(ev.Seq), ev.Data)
		check(err)
		check(cursor.SaveIn(ctx, tx, f.At(ev)))
		check(tx.Commit())
		if ev.Seq == 3 {
			break
		}
	}
	saved, err := cursor.Load(ctx)
	check(err)
	fmt.Println(saved.Seq)
	// Output: 3
}
