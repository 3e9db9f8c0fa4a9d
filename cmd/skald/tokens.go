package main

import (
	"context"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"github.com/skaldbus/skald/internal/access"
	"github.com/skaldbus/skald/internal/gateway"
)

// openTokens reads the file of tokens, if there is one.
func openTokens(path string, log *slog.Logger) (*access.Tokens, error) {
	if path == "" {
		return nil, nil
	}
	return access.Open(path, log)
}

// watchTokens puts changes of the file in force until ctx ends, and has it looked at
// when the process is hung up on.
func watchTokens(ctx context.Context, tokens *access.Tokens) error {
	if tokens == nil {
		<-ctx.Done()
		return nil
	}
	hup := make(chan os.Signal, 1)
	signal.Notify(hup, syscall.SIGHUP)
	done := make(chan error, 1)
	go func() { done <- tokens.Run(ctx) }()
	defer signal.Stop(hup)
	for {
		select {
		case <-hup:
			tokens.Check()
		case err := <-done:
			return err
		}
	}
}

// tokenChecks is readiness's line about the file of tokens, if there is one.
func tokenChecks(tokens *access.Tokens) []gateway.Check {
	if tokens == nil {
		return nil
	}
	c := gateway.Check{Name: "tokens", OK: true}
	if err := tokens.Problem(); err != nil {
		c.OK, c.Detail = false, err.Error()
	}
	return []gateway.Check{c}
}
