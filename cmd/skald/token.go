package main

import (
	"fmt"
	"os"

	"github.com/spf13/cobra"

	"github.com/skaldbus/skald/internal/access"
)

func tokenCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "token",
		Short: "Make tokens that may read over HTTP",
		Args:  cobra.NoArgs,
	}
	cmd.AddCommand(tokenNewCommand(e))
	return cmd
}

func tokenNewCommand(e env) *cobra.Command {
	var name, file string
	var workspaces []string
	var all bool
	cmd := &cobra.Command{
		Use:   "new",
		Short: "Make a token",
		Long: `Make a token for all workspaces (--all) or for some (--workspace, which may be
repeated), and add its line to the file that "skald serve --tokens FILE" reads. The
token is printed once and stands nowhere: the file holds only its hash. Without --file
the line is printed too, for you to add.`,
		Args: cobra.NoArgs,
	}
	f := cmd.Flags()
	f.StringVar(&name, "name", "", "what the token is called in the file")
	f.StringArrayVar(&workspaces, "workspace", nil, "`id` of a workspace that it may read")
	f.BoolVar(&all, "all", false, "it may read all workspaces, and status")
	f.StringVar(&file, "file", "", "add the line to this `file`, made if it is not there")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case all == (len(workspaces) > 0):
			return usage("either --all or --workspace says what the token may read")
		case f.Changed("file") && file == "":
			return usage("--file: must not be empty")
		}
		token, line, err := access.New(name, workspaces)
		if err != nil {
			return usage("--%w", err)
		}
		if file == "" {
			e.note("the token, shown this once, and the line for the file of tokens:")
			return printLines(e.stdout, [][]byte{[]byte(token), line})
		}
		if err := addLine(file, line); err != nil {
			return err
		}
		e.note("added to %s; the token, shown this once:", file)
		return printLines(e.stdout, [][]byte{[]byte(token)})
	}
	return cmd
}

// addLine appends a line to the file of tokens, unless it would be wrong then.
func addLine(path string, line []byte) (err error) {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("read file of tokens: %w", err)
	}
	if len(old) > 0 && old[len(old)-1] != '\n' {
		old = append(old, '\n')
	}
	text := append(append(old, line...), '\n')
	if err := access.Check(text); err != nil {
		return fmt.Errorf("add to %s: %w", path, err)
	}
	// serve reads the old file or the new one, never a part.
	next := path + ".new"
	if err := os.WriteFile(next, text, 0o600); err != nil {
		return fmt.Errorf("write file of tokens: %w", err)
	}
	if err := os.Rename(next, path); err != nil {
		return fmt.Errorf("write file of tokens: %w", err)
	}
	return nil
}
