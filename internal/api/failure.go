package api

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"time"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/materializer/store"
)

// Code names a failure: short, the same at every door and over releases.
type Code string

// The codes.
const (
	CodeBadParameter Code = "bad_parameter" // with parameter
	CodeCursorAhead  Code = "cursor_ahead"  // with latest_seq
	CodeCursorGone   Code = "cursor_gone"   // with oldest_seq and latest_seq
	CodeOtherEpoch   Code = "other_epoch"   // with epoch
	CodeNotFound     Code = "not_found"
	CodeAmbiguous    Code = "ambiguous" // with candidates
	CodeBehind       Code = "behind"
	CodeUnavailable  Code = "unavailable"
	CodeInternal     Code = "internal"
	// CodeTooLarge: the answer does not fit into one message of this server.
	CodeTooLarge Code = "too_large"
	// CodeUnauthorized: no token, or one that is not known. CodeForbidden: the token, or
	// the name by which the gateway was reached, does not allow it. They and
	// CodeNotAllowed belong to HTTP alone.
	CodeUnauthorized Code = "unauthorized"
	CodeForbidden    Code = "forbidden"
	CodeNotAllowed   Code = "method_not_allowed"
)

// Failure is an error as every door gives it: an HTTP status (over NATS the
// service's error code), a code and what helps the caller on.
type Failure struct {
	Status     int
	Code       Code
	Message    string
	Parameter  string        // for CodeBadParameter
	LatestSeq  *uint64       // where a cursor may stand
	OldestSeq  *uint64       // from where events are kept
	Epoch      string        // the epoch that holds now
	Candidates []string      // the workspaces that have a session of the id
	RetryAfter time.Duration // when to try again; 0 if that would not help
}

// Error returns the message.
func (f *Failure) Error() string { return f.Message }

// Is lets errors.Is find the error of package bus that a failure, also one read
// from another process, stands for.
func (f *Failure) Is(target error) bool {
	switch f.Code {
	case CodeCursorAhead:
		return target == bus.ErrCursorAhead
	case CodeCursorGone:
		return target == bus.ErrCursorGone
	case CodeOtherEpoch:
		return target == bus.ErrOtherEpoch
	case CodeNotFound:
		return target == bus.ErrNotFound
	case CodeAmbiguous:
		return target == bus.ErrAmbiguous
	case CodeBehind:
		return target == bus.ErrBehind
	case CodeUnavailable:
		return target == bus.ErrUnavailable
	}
	return false
}

// retryAfter is what callers are told to wait when trying again may help.
const retryAfter = time.Second

// FailureOf is the one table from errors to what callers are told. An error that
// it does not know is CodeInternal with a message that tells nothing: the door
// logs the error itself.
func FailureOf(err error) *Failure {
	f := &Failure{Message: err.Error()}
	var known *Failure
	var bad *ParameterError
	var cursor *store.CursorError
	var several *store.AmbiguousError
	if errors.As(err, &cursor) {
		f.LatestSeq, f.OldestSeq, f.Epoch, f.Message = &cursor.Latest, &cursor.Oldest, cursor.Epoch, cursor.Error()
	}
	switch {
	case errors.As(err, &known):
		return known
	case errors.As(err, &bad):
		f.Status, f.Code, f.Parameter = http.StatusBadRequest, CodeBadParameter, bad.Parameter
	case errors.Is(err, bus.ErrCursorAhead):
		f.Status, f.Code = http.StatusBadRequest, CodeCursorAhead
	case errors.Is(err, bus.ErrCursorGone):
		f.Status, f.Code = http.StatusGone, CodeCursorGone
	case errors.Is(err, bus.ErrOtherEpoch):
		f.Status, f.Code = http.StatusConflict, CodeOtherEpoch
	case errors.Is(err, bus.ErrNotFound):
		f.Status, f.Code = http.StatusNotFound, CodeNotFound
	case errors.As(err, &several):
		f.Status, f.Code, f.Candidates = http.StatusConflict, CodeAmbiguous, several.Workspaces
		f.Message = several.Error()
	case errors.Is(err, bus.ErrBehind):
		f.Status, f.Code, f.RetryAfter = http.StatusServiceUnavailable, CodeBehind, retryAfter
	case errors.Is(err, bus.ErrUnavailable), errors.Is(err, store.ErrBusy),
		errors.Is(err, context.DeadlineExceeded), errors.Is(err, context.Canceled):
		// The cause may name addresses, which is not the caller's business.
		f.Status, f.Code, f.RetryAfter = http.StatusServiceUnavailable, CodeUnavailable, retryAfter
		f.Message = bus.ErrUnavailable.Error()
	default:
		f.Status, f.Code, f.Message = http.StatusInternalServerError, CodeInternal, "internal error, see the log of skald serve"
	}
	return f
}

// AppendJSON appends the failure as a JSON object: error, code, and the members
// that its code brings.
func (f *Failure) AppendJSON(dst []byte) []byte {
	dst = append(dst, `{"error":`...)
	dst = bus.AppendQuoted(dst, f.Message)
	dst = append(dst, `,"code":`...)
	dst = bus.AppendQuoted(dst, string(f.Code))
	if f.Parameter != "" {
		dst = append(dst, `,"parameter":`...)
		dst = bus.AppendQuoted(dst, f.Parameter)
	}
	if f.LatestSeq != nil {
		dst = append(dst, `,"latest_seq":`...)
		dst = strconv.AppendUint(dst, *f.LatestSeq, 10)
	}
	if f.OldestSeq != nil {
		dst = append(dst, `,"oldest_seq":`...)
		dst = strconv.AppendUint(dst, *f.OldestSeq, 10)
	}
	if f.Epoch != "" {
		dst = append(dst, `,"epoch":`...)
		dst = bus.AppendQuoted(dst, f.Epoch)
	}
	if f.Candidates != nil {
		dst = append(dst, `,"candidates":[`...)
		for i, c := range f.Candidates {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = bus.AppendQuoted(dst, c)
		}
		dst = append(dst, ']')
	}
	return append(dst, '}')
}

// ParseFailure reads what AppendJSON wrote; ok is false if body is no failure of
// Skald's, as of a proxy in between.
func ParseFailure(status int, body []byte) (f *Failure, ok bool) {
	f = &Failure{Status: status}
	compact, err := bus.Compact(body)
	if err != nil {
		return nil, false
	}
	ok, err = bus.Members(compact, func(name string, v []byte) error {
		number := func() *uint64 {
			n, ok := bus.Int(v)
			if !ok || n < 0 {
				return nil
			}
			u := uint64(n)
			return &u
		}
		switch {
		case name == "latest_seq":
			f.LatestSeq = number()
		case name == "oldest_seq":
			f.OldestSeq = number()
		case name == "candidates":
			_, err := bus.Elements(v, func(c []byte) error {
				if bus.IsString(c) {
					f.Candidates = append(f.Candidates, bus.Unquote(c))
				}
				return nil
			})
			return err
		case !bus.IsString(v):
		case name == "error":
			f.Message = bus.Unquote(v)
		case name == "code":
			f.Code = Code(bus.Unquote(v))
		case name == "parameter":
			f.Parameter = bus.Unquote(v)
		case name == "epoch":
			f.Epoch = bus.Unquote(v)
		}
		return nil
	})
	return f, ok && err == nil && f.Code != "" && f.Message != ""
}

// parameter turns a complaint of package bus about a query's value into one that
// names the parameter. Complaints about anything else stay what they are: they
// would be faults of ours, and no caller is to blame.
func parameter(name string, err error) error {
	var invalid *bus.InvalidError
	if errors.As(err, &invalid) {
		return &ParameterError{Parameter: name, Rule: invalid.Rule}
	}
	return err
}
