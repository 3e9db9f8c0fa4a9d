package demo

import (
	"crypto/sha256"
	"encoding/hex"
	"strconv"
	"strings"
	"time"

	"github.com/skaldbus/skald/bus"
)

// nowMark stands in a step's body for the time at which it is played, in ms.
const nowMark = "@now"

// at returns the body of a step that is played at a time.
func (s *Step) at(t time.Time) string {
	return strings.ReplaceAll(s.Body, nowMark, strconv.FormatInt(t.UnixMilli(), 10))
}

// q returns a JSON string.
func q(s string) string { return string(bus.AppendQuoted(nil, s)) }

// observation returns an observation; without data it is a type alone.
func observation(typ, data string) string {
	if data == "" {
		return `{"type":` + q(typ) + `}`
	}
	return `{"type":` + q(typ) + `,"data":{` + data + `}}`
}

func sessionOpened(native string) string {
	return observation("session_opened", `"native_session_id":`+q(native)+`,"resumed":false`)
}

// agentInitialized names the runtime, with the id that the contract computes of its
// parts (semantics §4.3).
func agentInitialized(harness, version string) string {
	const platform, provenance = `"linux-x86_64"`, `"managed_installation"`
	components := `[{"name":"cli","version":` + q(version) + `,"sha256":null}]`
	id := sha256.Sum256([]byte(`[1,` + q(harness) + `,` + platform + `,` + provenance + `,` + components + `]`))
	return observation("agent_initialized", `"protocol_version":1,"capabilities":{"loadSession":true},"agent_info":null,"runtime":{"id":`+
		q("mj-runtime-v1:"+hex.EncodeToString(id[:]))+`,"harness":`+q(harness)+`,"platform":`+platform+`,"provenance":`+provenance+
		`,"components":`+components+`,"unavailable_reason":null}`)
}

func commandQueued(id, prompt string) string {
	return observation("command_queued", `"command_id":`+q(id)+`,"command":{"type":"prompt","data":{"prompt":[{"type":"text","text":`+q(prompt)+`}]}},"created_at_ms":`+nowMark)
}

func commandStarted(id string) string {
	return observation("command_started", `"command_id":`+q(id)+`,"started_at_ms":`+nowMark)
}

// commandCompleted ends a prompt; diagnostic may be empty.
func commandCompleted(id, reason, diagnostic string, tokens int) string {
	data := `"stop_reason":` + q(reason)
	if diagnostic != "" {
		data += `,"diagnostic":{"message":` + q(diagnostic) + `}`
	}
	n := strconv.Itoa
	data += `,"usage":{"scope":"turn","total_tokens":` + n(tokens) + `,"input_tokens":` + n(tokens-tokens/9) + `,"output_tokens":` + n(tokens/9) + `}`
	return observation("command_completed", `"command_id":`+q(id)+`,"outcome":{"type":"prompt","data":{`+data+`}}`)
}

// commandFailed is a prompt that was rejected or interrupted.
func commandFailed(typ, id, message string) string {
	return observation(typ, `"command_id":`+q(id)+`,"command":"prompt","message":`+q(message))
}

func update(kind, members string) string {
	return observation("session_update", `"update":{"sessionUpdate":`+q(kind)+`,`+members+`}`)
}

func chunk(kind, text string) string {
	return update(kind, `"content":{"type":"text","text":`+q(text)+`}`)
}

func toolCall(id string, t tool) string {
	return update("tool_call", `"toolCallId":`+q(id)+`,"title":`+q(t.title)+`,"kind":`+q(t.kind)+`,"status":"pending"`)
}

func toolUpdate(id, status, output string) string {
	members := `"toolCallId":` + q(id) + `,"status":` + q(status)
	if output != "" {
		members += `,"content":[{"type":"content","content":{"type":"text","text":` + q(output) + `}}]`
	}
	return update("tool_call_update", members)
}

func infoUpdate(title string) string { return update("session_info_update", `"title":`+q(title)) }

func terminalOutput(id, output string) string {
	return observation("terminal_output", `"terminal_id":`+q(id)+`,"output":`+q(output)+`,"truncated":false,"exit_code":0,"signal":null`)
}

func elicitationRequested(id string, ask question) string {
	kind := `"kind":"text"`
	if len(ask.options) > 0 {
		kind = `"kind":"single_select","options":[`
		for i, o := range ask.options {
			if i > 0 {
				kind += ","
			}
			kind += `{"value":` + q(o) + `,"title":` + q(o) + `}`
		}
		kind += `]`
	}
	return observation("elicitation_requested", `"request":{"id":`+q(id)+`,"message":`+q(ask.message)+
		`,"fields":[{"id":"answer","title":"Answer","required":true,"secret":false,`+kind+`}]}`)
}

func elicitationResolved(id, action string) string {
	return observation("elicitation_resolved", `"elicitation_id":`+q(id)+`,"action":`+q(action))
}

// activity says what a session does: kind is that of the details.
func activity(state, kind, since, label string) string {
	details := `"kind":` + q(kind) + `,` + q(since) + `:` + nowMark
	if label != "" {
		details += `,"label":` + q(label)
	}
	idle, waiting := strconv.FormatBool(kind == "idle"), strconv.FormatBool(state == "waiting_for_input")
	return `{"state":` + q(state) + `,"details":{` + details + `},"is_idle":` + idle + `,"waiting_for_input":` + waiting + `,"capacity_retry":false}`
}
