// Package samplemcp is a small MCP server for trying out upstreams. It converts units,
// needs no configuration and changes nothing.
package samplemcp

import (
	"context"
	"errors"
	"io"
	"slices"
	"strings"

	"github.com/modelcontextprotocol/go-sdk/mcp"
)

// factors returns, by quantity and unit, the size of the unit in the quantity's base unit.
func factors() map[string]map[string]float64 {
	return map[string]map[string]float64{
		"length": {"m": 1, "km": 1000, "cm": 0.01, "in": 0.0254, "ft": 0.3048, "mi": 1609.344},
		"mass":   {"kg": 1, "g": 0.001, "lb": 0.45359237, "oz": 0.028349523125},
		"time":   {"s": 1, "min": 60, "h": 3600, "d": 86400},
	}
}

type question struct {
	Value float64 `json:"value" jsonschema:"how much"`
	From  string  `json:"from" jsonschema:"its unit, such as km"`
	To    string  `json:"to" jsonschema:"the unit that is wanted, such as mi"`
}

type answer struct {
	Value float64 `json:"value"`
	Unit  string  `json:"unit"`
}

func convert(_ context.Context, _ *mcp.CallToolRequest, q question) (*mcp.CallToolResult, answer, error) {
	for _, units := range factors() {
		from, known := units[q.From]
		to, fits := units[q.To]
		if known && fits {
			return nil, answer{Value: q.Value * from / to, Unit: q.To}, nil
		}
	}
	return nil, answer{}, errors.New("those are not two units of one quantity: ask the tool units for the units there are")
}

type listing struct {
	Units map[string][]string `json:"units"`
}

func units(context.Context, *mcp.CallToolRequest, struct{}) (*mcp.CallToolResult, listing, error) {
	out := listing{Units: make(map[string][]string)}
	for quantity, of := range factors() {
		for unit := range of {
			out.Units[quantity] = append(out.Units[quantity], unit)
		}
		slices.Sort(out.Units[quantity])
	}
	return nil, out, nil
}

// kept is a writer whose Close does nothing, because the caller owns it.
type kept struct{ io.Writer }

func (kept) Close() error { return nil }

// Serve serves one client over in and out until the client disconnects or ctx ends. It
// closes neither. version is the reported version of the server.
func Serve(ctx context.Context, version string, in io.Reader, out io.Writer) error {
	server := mcp.NewServer(&mcp.Implementation{Name: "units", Version: version}, nil)
	reads := &mcp.ToolAnnotations{ReadOnlyHint: true}
	mcp.AddTool(server, &mcp.Tool{Name: "convert", Description: "Convert a value from one unit to another", Annotations: reads}, convert)
	mcp.AddTool(server, &mcp.Tool{Name: "units", Description: "List the units that can be converted", Annotations: reads}, units)
	server.AddPrompt(&mcp.Prompt{
		Name: "recipe", Description: "Rewrite a recipe in metric units",
		Arguments: []*mcp.PromptArgument{{Name: "text", Required: true}},
	},
		func(_ context.Context, req *mcp.GetPromptRequest) (*mcp.GetPromptResult, error) {
			return &mcp.GetPromptResult{Messages: []*mcp.PromptMessage{{Role: "user", Content: &mcp.TextContent{
				Text: "Rewrite this recipe in metric units, by the tool convert:\n\n" + strings.TrimSpace(req.Params.Arguments["text"]),
			}}}}, nil
		})
	err := server.Run(ctx, &mcp.IOTransport{Reader: io.NopCloser(in), Writer: kept{out}})
	if errors.Is(err, context.Canceled) || errors.Is(err, io.EOF) {
		return nil
	}
	return err
}
