package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/demo"
	"github.com/skaldbus/skald/internal/target"
)

// errMiscounted: the facts of a demo are not those that its messages give.
var errMiscounted = errors.New("the facts are not those that the messages should give")

// factPrinter returns what prints a demo's facts: lines for people on a terminal,
// else the wire's JSON.
func (e env) factPrinter(o demoOptions) func(bus.Event) error {
	if o.asJSON || !terminal(e.stdout) {
		return func(ev bus.Event) error { return printLines(e.stdout, [][]byte{ev.AppendJSON(nil)}) }
	}
	most := width(e.stdout)
	story, err := demo.NewStory(o.seed, o.sessions)
	if err != nil {
		return nil // demo.Run refuses the same
	}
	longest := 0
	for _, s := range story.Sessions() {
		longest = max(longest, len(s.Key.Workspace)+1+len(s.Key.Session))
	}
	return func(ev bus.Event) error {
		line := fmt.Sprintf("%6d  %s  %-*s  %s", ev.Seq, time.UnixMilli(ev.StoredAt).Format(time.TimeOnly),
			longest, ev.Workspace+"/"+ev.Session, demo.Describe(&ev, story.Prompt))
		if _, err := fmt.Fprintln(e.stdout, clip(visible(line), most)); err != nil {
			return fmt.Errorf("%w: %w", errOutput, err)
		}
		return nil
	}
}

// self returns this program as words of a shell.
func self() string {
	executable, _ := os.Executable() // "" is no build's either
	return program(os.Args[0], executable)
}

// look returns the flags with which another command reads the demo's bus, "" if they
// would show a secret.
func (e env) look(b *demoBus) string {
	if secret(b.natsURL) {
		return ""
	}
	o := serveOptions{nats: b.nats}
	return e.connection(o, b.natsURL)
}

// demoBegins says what is to be seen and where to look meanwhile.
func (e env) demoBegins(o demoOptions, b *demoBus) error {
	story, err := demo.NewStory(o.seed, o.sessions)
	if err != nil {
		return err
	}
	workers := story.Workers()
	e.note("A story of %s in %s, about %g messages a second, seed %d,", count(o.sessions, "session", "sessions"),
		count(len(workers), "workspace", "workspaces"), o.rate, o.seed)
	e.note("on %s.", b.where())
	e.note("Its workers stream what happens; what is worth telling becomes a fact with a number, one a line below.")
	if flags := e.look(b); flags != "" {
		e.note("Meanwhile, in another terminal:")
		e.note("  %s sessions%s", self(), flags)
		e.note("  %s events%s --workspace %s --after-seq 0", self(), flags, workers[0])
		first := story.Sessions()[0].Key
		e.note("  %s session%s --workspace %s %s", self(), flags, first.Workspace, first.Session)
	}
	if b.httpURL != "" {
		e.note("  curl -s %s", quote(b.httpURL+"/api/v1/status"))
		e.note("or open %s/ in a browser: those that need somebody are on top.", b.httpURL)
	}
	if o.length == 0 {
		e.note("Ctrl-C ends it.")
	}
	e.note("")
	return nil
}

// demoEnds says what the story came to and what to look at next. The error is
// errMiscounted if a fact is missing or came twice.
func (e env) demoEnds(ctx context.Context, o demoOptions, b *demoBus, sum demo.Summary) error {
	e.note("")
	total := 0
	var types []string
	for typ, n := range sum.Facts {
		total += n
		types = append(types, fmt.Sprintf("%s %d", typ, n))
	}
	slices.Sort(types)
	e.note("In %s the fleet said %s, which became %s.", sum.Took.Round(time.Second), count(sum.Said, "thing", "things"), count(total, "fact", "facts"))
	if total == 0 {
		return nil
	}
	e.note("  %s", strings.Join(types, ", "))
	if sum.Killed > 0 {
		e.note("  %s killed; %s had to be sent again.", count(sum.Killed, "worker was", "workers were"), count(sum.Again, "observation", "observations"))
	}
	if len(sum.Missing) > 0 {
		return fmt.Errorf("%w: %v (by type, how many are missing; below 0: came twice)", errMiscounted, sum.Missing)
	}
	if sum.Resumed < len(sum.Sessions) {
		e.note("  Every fact that should come of it came, exactly once: the demo has compared them.")
	}
	if sum.Resumed > 0 {
		e.note("  %s went on where an earlier story had ended.", count(sum.Resumed, "session", "sessions"))
	}
	open, err := waiting(ctx, b.conn, sum)
	if err != nil {
		return err
	}
	if len(open) > 0 {
		e.note("Sessions that need somebody:")
		for _, line := range open {
			e.note("  %s", clip(visible(line), width(e.stderr)))
		}
	}
	e.next(b, sum)
	return nil
}

// next prints commands that work after the demo.
func (e env) next(b *demoBus, sum demo.Summary) {
	k := sum.Sessions[0].Key
	flags := e.look(b)
	switch {
	case b.removed:
		e.note("Next: keep a bus to look at, or watch a story on one that runs:")
		e.note("  %s demo --data ./demo-data", self())
		e.note("  %s serve     # and, in another terminal: %s demo", self(), self())
		return
	case b.ended != nil:
		flags = " --data " + quote(b.data)
		e.note("Next, on what it left:")
	case flags == "":
		return
	default:
		e.note("Next:")
	}
	e.note("  %s sessions%s", self(), flags)
	e.note("  %s events%s --after-seq %d --type %s", self(), flags, sum.First-1, bus.TypeInputRequired)
	e.note("  %s session%s --workspace %s %s", self(), flags, k.Workspace, k.Session)
	if b.ended != nil {
		e.note("  %s serve%s", self(), flags)
	} else {
		e.note("  %s forget%s --workspace %s %s     # and it is gone from every reader", self(), flags, k.Workspace, k.Session)
	}
}

// waiting lists the story's sessions that wait for an answer or whose last turn
// went wrong, as the table has them.
func waiting(ctx context.Context, t target.Target, sum demo.Summary) ([]string, error) {
	var out []string
	for _, s := range sum.Sessions {
		body, err := t.Session(ctx, s.Key.Session, api.Params{api.ParamWorkspace: {s.Key.Workspace}})
		if errors.Is(err, bus.ErrNotFound) {
			continue // forgotten meanwhile
		}
		if err != nil {
			return nil, err
		}
		var v struct {
			Title       string
			LastError   string                     `json:"last_error"`
			Elicitation []struct{ Message string } `json:"pending_elicitations"`
			Active      *struct{}                  `json:"active_turn"`
			Last        struct {
				Outcome struct {
					Kind, Message string
					StopReason    string `json:"stop_reason"`
				}
			} `json:"last_turn_outcome"`
		}
		if err := json.Unmarshal(body, &v); err != nil {
			return nil, fmt.Errorf("read session: %w", err)
		}
		what, o := "", v.Last.Outcome
		switch {
		case len(v.Elicitation) > 0:
			what = "asks: " + v.Elicitation[0].Message
		case v.Active != nil:
			continue
		case v.LastError != "":
			what = "failed: " + v.LastError
		case o.StopReason == "AwaitingInput":
			what = "waits for its user to say what next"
		case o.Kind == "rejected" || o.Kind == "interrupted":
			what = o.Kind + ": " + o.Message
		default:
			continue
		}
		out = append(out, fmt.Sprintf("%s/%s (%s) %s", s.Key.Workspace, s.Key.Session, v.Title, what))
	}
	return out, nil
}
