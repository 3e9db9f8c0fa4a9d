package demo

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/skaldbus/skald/bus"
)

// Describe says in a few words what a fact tells. prompt finds what was asked by a
// command's id; it may be nil.
func Describe(ev *bus.Event, prompt func(commandID string) string) string {
	var d struct {
		Turn struct {
			CommandID string `json:"command_id"`
			Outcome   struct {
				Kind, Message string
				StopReason    string `json:"stop_reason"`
			}
			Diagnostic struct{ Message string }
		}
		Message  string
		Action   string
		Request  *struct{ Message string }
		Activity struct {
			State   string
			Details struct{ Kind, Label string }
		}
		Receipt struct {
			Harness    string
			Components []struct{ Version string }
		}
	}
	if json.Unmarshal(ev.Data, &d) != nil {
		return ev.Type
	}
	asked := func() string {
		if prompt != nil {
			if p := prompt(d.Turn.CommandID); p != "" {
				return ": " + p
			}
		}
		return " " + d.Turn.CommandID
	}
	switch ev.Type {
	case bus.TypeTurnStarted:
		return "> begins" + asked()
	case bus.TypeTurnEnded:
		switch o := d.Turn.Outcome; {
		case o.Kind != "completed":
			return "x " + o.Kind + asked()
		case strings.EqualFold(o.StopReason, "endturn"):
			return "= done" + asked()
		default:
			return "- ended with " + o.StopReason + asked()
		}
	case bus.TypeError:
		return "! error: " + d.Message
	case bus.TypeInputRequired:
		if d.Request == nil {
			return "? waits for its user to say what next"
		}
		return "? asks: " + d.Request.Message
	case bus.TypeInputResolved:
		return "? answered: " + d.Action
	case bus.TypeActivityChanged:
		what := strings.ReplaceAll(d.Activity.State, "_", " ")
		if d.Activity.Details.Kind == "step" {
			what = d.Activity.Details.Label
		}
		return "  now: " + what
	case bus.TypeRuntimeResolved:
		version := ""
		if len(d.Receipt.Components) > 0 {
			version = " " + d.Receipt.Components[0].Version
		}
		return "  runs on " + d.Receipt.Harness + version
	}
	return fmt.Sprintf("  %s %s", ev.Type, ev.Data)
}
