package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/spf13/cobra"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/client"
	"github.com/junctor-run/junctor/internal/base/ids"
	"github.com/junctor-run/junctor/internal/core/command/fault"
)

// printPartial prints the output of a run before it failed.
func (a *app) printPartial(e *capability.Error) {
	if e == nil || a.json {
		return
	}
	if said, _ := e.Details["output"].(string); strings.TrimSpace(said) != "" {
		a.printf("%s\n", fault.Clean(strings.TrimRight(said, "\n")))
	}
}

// chatCommand returns the command for a conversation, in which each line is a message.
func (a *app) chatCommand() *cobra.Command {
	var session string
	c := &cobra.Command{
		Use: "chat", Short: "Chat with the agent line by line, and run slash commands", Args: cobra.NoArgs,
		Long: `Chat line by line. A line that begins with a slash runs a command; everything else
goes to the agent, which answers with the language model (model.url) and the tools
that it may use. A call that needs an approval is shown whole, and you decide. /help
lists the commands, /stop ends what the agent does, /quit or the end of input ends
the conversation, which is kept under its session.`,
		Example: `  junctor chat
  printf '/help\n' | junctor chat --session s1`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if session == "" {
				session = "chat-" + ids.Text()[:10]
			}
			return a.chat(cmd.Context(), session)
		},
	}
	c.Flags().StringVar(&session, "session", "", "`SESSION` session to go on with (default a new one)")
	return c
}

// chat sends each line of standard input as a message and prints the replies, until the input ends
// or the user types /quit. At a terminal it asks for required approvals.
func (a *app) chat(ctx context.Context, session string) error {
	server, err := a.client()
	if err != nil {
		return err
	}
	ask := terminal(a.stdin) && !a.json
	if ask {
		a.printf("Session %s. /help lists the commands, /quit leaves.\n", session)
	}
	lines := bufio.NewScanner(a.stdin)
	lines.Buffer(nil, maxLine)
	for {
		if ask {
			a.printf("> ")
		}
		if !lines.Scan() {
			break
		}
		line := strings.TrimSpace(lines.Text())
		switch line {
		case "":
			continue
		case "/quit", "/exit":
			return nil
		}
		question, agent, err := a.say(ctx, server, session, line)
		if err == nil && agent != nil && ask {
			err = a.goOn(ctx, server, lines, *agent)
		}
		if ctx.Err() != nil && ask { // Ctrl-C: the agent stops too
			a.stopAgent(server, session)
			return capability.AsError(ctx.Err())
		}
		if err != nil {
			return err
		}
		if agent != nil && ask {
			continue
		}
		id, asked := approvalOf(question)
		if !asked || !ask {
			continue
		}
		a.printf("Go on? [y/N] ")
		if !lines.Scan() {
			break
		}
		word := "deny"
		if isYes(strings.TrimSpace(lines.Text())) {
			word = "once"
		}
		if err := server.Do(ctx, http.MethodPost, "/api/v1/approvals/"+url.PathEscape(id), map[string]string{"decision": word},
			nil); err != nil {
			return err
		}
		if word == "once" {
			if _, _, err := a.say(ctx, server, session, line); err != nil {
				return err
			}
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		return capability.Errorf(capability.CodeTooLarge, "chat", "a line has more than %d bytes", maxLine)
	}
	return lines.Err()
}

// say sends one message and prints the reply as it arrives. It returns the error in the reply and
// the agent's run that waits, if there are any, and err if no reply arrived.
func (a *app) say(ctx context.Context, server *client.Client, session, text string) (*capability.Error, *waiting, error) {
	body := map[string]any{"session_id": session, "text": text, "stream": true}
	ended := true // the printed text ends with a line end
	for line, err := range server.Lines(ctx, http.MethodPost, "/api/v1/chat/messages", body) {
		if err != nil {
			return nil, nil, err
		}
		if a.json {
			if err := a.printJSON(line); err != nil {
				return nil, nil, err
			}
		}
		item, err := decode[struct {
			Text     string
			Error    *capability.Error
			Progress *capability.Chunk
			Reply    *struct {
				Type, Run, Event string
				Error            *capability.Error
			}
		}](line)
		switch {
		case err != nil:
			return nil, nil, err
		case item.Error != nil:
			return nil, nil, item.Error
		case item.Reply != nil:
			if !a.json && !ended {
				a.printf("\n")
			}
			if r := item.Reply; r.Run != "" && r.Type == "confirmation" && r.Error != nil {
				return r.Error, &waiting{r.Run, r.Event, stringsOf(r.Error.Details["approvals"])}, nil
			}
			return item.Reply.Error, nil, a.printDeeds(ctx, server, item.Reply.Run)
		case a.json:
		case item.Progress != nil && item.Progress.Message == "":
		case item.Progress != nil && terminal(a.stdin):
			fmt.Fprintf(a.stderr, "… %s\n", plainText(item.Progress.Message))
		default:
			a.printf("%s", fault.Clean(item.Text))
			ended = strings.HasSuffix(item.Text, "\n")
		}
	}
	return nil, nil, nil
}

// stringsOf returns the strings of a decoded JSON list.
func stringsOf(list any) (out []string) {
	items, _ := list.([]any)
	for _, item := range items {
		if s, ok := item.(string); ok {
			out = append(out, s)
		}
	}
	return out
}
