package main

import (
	"encoding/json"
	"fmt"
	"os"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/skaldbus/skald/internal/config"
	"github.com/skaldbus/skald/internal/natsconn"
)

// hiddenValue stands for a secret.
const hiddenValue = "(hidden)"

func configCommand(e env) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "config",
		Short: "See how serve is configured",
		Args:  cobra.NoArgs,
		RunE:  func(*cobra.Command, []string) error { return usage("config: show is the one command here") },
	}
	cmd.AddCommand(configShowCommand(e))
	return cmd
}

func configShowCommand(e env) *cobra.Command {
	var o serveOptions
	var asJSON bool
	flags := o.flags()
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print what serve would run with, and where each value comes from",
		Long: `Print what serve would run with, given the same flags, variables and file, and where
each value comes from. What serve would refuse is refused. Secrets are not shown.`,
		Args: cobra.NoArgs,
	}
	cmd.Flags().AddFlagSet(flags)
	cmd.Flags().BoolVar(&asJSON, "json", false, "print one JSON object a line, also on a terminal")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		from, err := config.Apply(flags)
		if err != nil {
			return err
		}
		was := values(flags)
		if _, _, err := o.check(cmd, e); err != nil {
			return err
		}
		return showConfig(e, o.settings(flags, was, from), asJSON)
	}
	return cmd
}

// setting is a flag with its value in force.
type setting struct {
	Name  string `json:"name"`
	Value string `json:"value"`
	From  string `json:"from"`
}

func values(f *pflag.FlagSet) map[string]string {
	out := map[string]string{}
	f.VisitAll(func(flag *pflag.Flag) { out[flag.Name] = flag.Value.String() })
	return out
}

// settings returns what is in force. What differs from was comes from the variables of
// the nats tool, or from the context that they or a flag name.
func (o *serveOptions) settings(f *pflag.FlagSet, was, from map[string]string) []setting {
	var out []setting
	f.VisitAll(func(flag *pflag.Flag) {
		s := setting{flag.Name, flag.Value.String(), from[flag.Name]}
		if s.Value != was[s.Name] {
			s.From = "context " + o.nats.context
			if v := natsVariables[s.Name]; v != "" && os.Getenv(v) == s.Value {
				s.From = v
			}
		}
		switch {
		case s.Name == "server" && s.Value != "":
			s.Value = natsconn.Redact(s.Value)
		case s.Name == "password" && s.Value != "", s.Name == "user" && s.Value != "" && o.nats.password == "":
			s.Value = hiddenValue // without a password the user is a token
		}
		out = append(out, s)
	})
	return out
}

func showConfig(e env, all []setting, asJSON bool) error {
	if asJSON || !terminal(e.stdout) {
		var lines [][]byte
		for _, s := range all {
			b, err := json.Marshal(s)
			if err != nil {
				return fmt.Errorf("encode setting: %w", err)
			}
			lines = append(lines, b)
		}
		return printLines(e.stdout, lines)
	}
	rows := [][]string{{"NAME", "VALUE", "FROM"}}
	for _, s := range all {
		rows = append(rows, []string{s.Name, s.Value, s.From})
	}
	return table(e.stdout, rows, width(e.stdout))
}
