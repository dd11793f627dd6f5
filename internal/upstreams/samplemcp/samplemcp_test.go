package samplemcp

import (
	"encoding/json"
	"io"
	"strings"
	"testing"

	"github.com/modelcontextprotocol/go-sdk/mcp"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestUnitsAreConvertedAndOthersRefused(t *testing.T) {
	ctx := t.Context()
	fromClient, toServer := io.Pipe()
	fromServer, toClient := io.Pipe()
	served := make(chan error, 1)
	go func() { served <- Serve(ctx, "test", fromClient, toClient) }()
	session, err := mcp.NewClient(&mcp.Implementation{Name: "test"}, nil).Connect(ctx, &mcp.IOTransport{Reader: fromServer, Writer: toServer},
		nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name, input, want string
		fails             bool
	}{
		{name: "convert", input: `{"value":5,"from":"mi","to":"km"}`, want: `{"unit":"km","value":8.04672}`},
		{name: "convert", input: `{"value":5,"from":"mi","to":"kg"}`, want: "not two units of one quantity", fails: true},
		{name: "convert", input: `{"value":5,"from":"parsec","to":"km"}`, want: "not two units of one quantity", fails: true},
		{name: "units", input: `{}`, want: `"time":["d","h","min","s"]`},
	} {
		got, err := session.CallTool(ctx, &mcp.CallToolParams{Name: c.name, Arguments: json.RawMessage(c.input)})
		if err != nil {
			t.Fatal(err)
		}
		data, err := json.Marshal(got.StructuredContent)
		if err != nil {
			t.Fatal(err)
		}
		if got.IsError {
			data = []byte(got.Content[0].(*mcp.TextContent).Text)
		}
		if got.IsError != c.fails || !strings.Contains(string(data), c.want) {
			t.Errorf("%s of %s: %s; want got.IsError = %v, string(data) with %v", c.name, c.input, data, c.fails, c.want)
		}
	}
	if err := session.Close(); err != nil {
		t.Error(err)
	}
	if err := <-served; err != nil {
		t.Errorf("a client that goes ends it with %v", err)
	}
}
