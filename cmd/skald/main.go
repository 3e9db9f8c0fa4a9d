package main

import (
	"errors"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
	"golang.org/x/term"

	"github.com/skaldbus/skald/bus"
	"github.com/skaldbus/skald/internal/api"
	"github.com/skaldbus/skald/internal/config"
	"github.com/skaldbus/skald/internal/natsconn"
	"github.com/skaldbus/skald/internal/natsd"
	"github.com/skaldbus/skald/internal/target"
)

func main() {
	os.Exit(run(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// Exit statuses.
const (
	exitOK       = 0
	exitFailed   = 1
	exitUsage    = 2
	exitNotFound = 3
	exitFindings = 4 // something is off, and was listed
)

// env is what a command reads from and writes to.
type env struct {
	stdin  io.Reader
	stdout io.Writer
	stderr io.Writer
}

// note writes a line that is no data.
func (e env) note(format string, args ...any) {
	fmt.Fprintf(e.stderr, format+"\n", args...)
}

// terminal reports whether v, a stream of env, is a terminal.
func terminal(v any) bool {
	f, ok := v.(*os.File)
	return ok && term.IsTerminal(int(f.Fd()))
}

// run is the whole program but for the process: it returns the exit status.
func run(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	e := env{stdin: stdin, stdout: stdout, stderr: stderr}
	entered := false
	root := &cobra.Command{
		Use:           "skald",
		Short:         "A durable, ordered event bus for sessions",
		SilenceErrors: true,
		SilenceUsage:  true,
		// Whatever fails before this is about the command line.
		PersistentPreRun: func(*cobra.Command, []string) { entered = true },
	}
	root.SetArgs(args)
	root.SetIn(stdin)
	root.SetOut(stdout)
	root.SetErr(stderr)
	root.AddCommand(
		serveCommand(e), publishCommand(e), eventsCommand(e), tailCommand(e), sessionsCommand(e), sessionCommand(e), statusCommand(e),
		checkCommand(e), configCommand(e), rejectsCommand(e), forgetCommand(e), pruneCommand(e), resyncCommand(e),
		replicasCommand(e), repairCommand(e), verifyCommand(e), backupCommand(e), restoreCommand(e), tokenCommand(e),
		authCommand(e), edgeCommand(e), demoCommand(e), benchCommand(e), versionCommand(e),
	)
	if len(args) > 0 && (args[0] == cobra.ShellCompRequestCmd || args[0] == cobra.ShellCompNoDescRequestCmd) {
		parseAgain(root)
	}
	cmd, err := root.ExecuteC()
	if err != nil && !entered {
		err = usage("%w", err)
	}
	status := exitStatus(err)
	if err != nil && !errors.Is(err, errSaid) && !errors.Is(err, errFindings) {
		e.note("skald: %v", err)
	}
	var own *statusError
	if status == exitUsage && !errors.As(err, &own) {
		e.note("see %s --help", cmd.CommandPath())
	}
	return status
}

var (
	// errUsage marks an error as one of the command line.
	errUsage = errors.New("wrong usage")
	// errSaid ends a command that has told what failed, line by line.
	errSaid = errors.New("some of it failed")
	// errFindings ends a command that has listed what is off.
	errFindings = errors.New("something is off")
)

// usageError is an error of the command line that reads as what it wraps.
type usageError struct{ error }

func (u usageError) Unwrap() error        { return u.error }
func (u usageError) Is(target error) bool { return target == errUsage }

func usage(format string, args ...any) error {
	return usageError{fmt.Errorf(format, args...)}
}

// exitStatus is the one table from errors to exit statuses.
func exitStatus(err error) int {
	var bad *api.ParameterError
	var failure *api.Failure
	var own *statusError
	switch {
	case err == nil:
		return exitOK
	case errors.As(err, &own):
		return own.status
	case errors.Is(err, errUsage), errors.Is(err, target.ErrUsage), errors.Is(err, config.ErrConfig), errors.As(err, &bad):
		return exitUsage
	case errors.As(err, &failure) && failure.Code == api.CodeBadParameter:
		return exitUsage
	case errors.Is(err, natsd.ErrAddress), errors.Is(err, natsd.ErrExposed), errors.Is(err, natsconn.ErrURL), errors.Is(err, natsconn.ErrOptions):
		return exitUsage
	case errors.Is(err, errFindings):
		return exitFindings
	case errors.Is(err, bus.ErrNotFound):
		return exitNotFound
	}
	return exitFailed
}
