package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Model configures the language models that explain results and answer chat.
type Model struct {
	Kind      string       `koanf:"kind" doc:"API of model.url: openai-chat (OpenAI, Ollama, vLLM, OpenRouter; short: openai), openai-responses, anthropic-messages (anthropic) or gemini-generate."`
	URL       string       `koanf:"url" doc:"Base address, with /v1 for OpenAI's APIs and /v1beta for Gemini's; https, or http on this machine. With model.name it is one route of class large. Without a model, chat answers commands only, and results are explained by an extract."`
	Name      string       `koanf:"name" doc:"Name of the model at the service."`
	KeySecret string       `koanf:"key_secret" doc:"Key for the service."`
	MaxTokens int          `koanf:"max_tokens" doc:"Longest answer, in tokens."`
	PriceIn   int          `koanf:"price_in" doc:"Price of a million request tokens, in thousandths of any currency (3000 is 3), for agent.budget.cost."`
	PriceOut  int          `koanf:"price_out" doc:"The same for answers."`
	Routes    []ModelRoute `koanf:"routes" doc:"Services in order, in place of model.url: if one is overloaded, broken or too slow to begin, the next of its class is used. Class large answers chat, small explains results; a class without a route uses the other's. As a variable: class kind url name [key_secret], comma-separated."`
}

// ModelRoute is one service.
type ModelRoute struct {
	Class     string `koanf:"class" doc:"large or small."`
	Kind      string `koanf:"kind" doc:"One of the kinds of model.kind, or module: the model of an endpoint's module, for class small only."`
	URL       string `koanf:"url" doc:"Base address of the service."`
	Name      string `koanf:"name" doc:"Name of the model; of a module its type, such as TEXT_SMALL."`
	Action    string `koanf:"action" doc:"Canonical action of a route of kind module. Empty: model.invoke."`
	KeySecret string `koanf:"key_secret" doc:"Name of the stored secret that holds the key."`
	PriceIn   int    `koanf:"price_in" doc:"Price of a million tokens of requests, in thousandths."`
	PriceOut  int    `koanf:"price_out" doc:"The same for answers."`
}

// The classes of models.
const (
	ModelLarge = "large"
	ModelSmall = "small"
)

// ModelModule is the kind of a route to the model of an endpoint's module.
const ModelModule = "module"

// All returns the routes, or the one that model.url stands for. Kinds are in their long form.
func (m Model) All() []ModelRoute {
	list := m.Routes
	if m.URL != "" {
		list = []ModelRoute{{
			Class: ModelLarge, Kind: m.Kind, URL: m.URL, Name: m.Name, KeySecret: m.KeySecret, PriceIn: m.PriceIn, PriceOut: m.PriceOut,
		}}
	}
	out := make([]ModelRoute, len(list))
	for i, r := range list {
		switch r.Kind {
		case "openai":
			r.Kind = "openai-chat"
		case "anthropic":
			r.Kind = "anthropic-messages"
		case ModelModule:
			r.Action = cmp.Or(r.Action, "model.invoke")
		}
		out[i] = r
	}
	return out
}

func (m Model) validate() error {
	kinds := []string{"openai-chat", "openai-responses", "anthropic-messages", "gemini-generate", "openai", "anthropic"}
	if err := oneOf("model.kind", m.Kind, kinds...); err != nil {
		return err
	}
	if m.URL != "" && m.Name == "" {
		return fmt.Errorf("model.name: say which model of %s is asked", m.URL)
	}
	if m.URL != "" && len(m.Routes) > 0 {
		return fmt.Errorf("model.url: move it to model.routes, which is set too")
	}
	if len(m.Routes) > maxModelRoutes {
		return fmt.Errorf("model.routes: %d are too many; use at most %d", len(m.Routes), maxModelRoutes)
	}
	for i, r := range m.Routes {
		at := fmt.Sprintf("model.routes[%d]", i)
		if err := oneOf(at+".class", r.Class, ModelLarge, ModelSmall); err != nil {
			return err
		}
		if err := oneOf(at+".kind", r.Kind, append(kinds, ModelModule)...); err != nil {
			return err
		}
		if module := r.Kind == ModelModule; module && (r.Class != ModelSmall || r.Name == "" || r.URL != "" || r.KeySecret != "") ||
			!module && r.Action != "" {
			return fmt.Errorf("%s: a route of kind module has class small, the name of a model type, no url and no key_secret; "+
				"only such a route has an action", at)
		}
		if min(r.PriceIn, r.PriceOut, m.PriceIn, m.PriceOut) < 0 {
			return fmt.Errorf("%s: a price is 0 or more", at)
		}
		if r.Kind != ModelModule && (r.URL == "" || r.Name == "") {
			return fmt.Errorf("%s: a route needs url and name", at)
		}
	}
	if len(m.Routes) > 0 && !slices.ContainsFunc(m.Routes, func(r ModelRoute) bool { return r.Kind != ModelModule }) {
		return fmt.Errorf("model.routes: the model of a module answers no chat; add a route of another kind")
	}
	return nil
}

// parseModelRoutes parses a comma-separated list of class kind url name [key_secret].
func parseModelRoutes(s string) ([]any, error) {
	var out []any
	for part := range strings.SplitSeq(s, ",") {
		words := strings.Fields(part)
		if len(words) == 0 {
			continue
		}
		if len(words) != 4 && len(words) != 5 {
			return nil, fmt.Errorf("%q is not class kind url name [key_secret]", strings.TrimSpace(part))
		}
		route := map[string]any{"class": words[0], "kind": words[1], "url": words[2], "name": words[3]}
		if len(words) == 5 {
			route["key_secret"] = words[4]
		}
		out = append(out, route)
	}
	return out, nil
}

func plainModelRoutes(routes []ModelRoute) []any {
	out := []any{}
	for _, r := range routes {
		out = append(out, map[string]any{
			"class": r.Class, "kind": r.Kind, "url": r.URL, "name": r.Name, "key_secret": r.KeySecret, "action": r.Action,
			"price_in": r.PriceIn, "price_out": r.PriceOut,
		})
	}
	return out
}
