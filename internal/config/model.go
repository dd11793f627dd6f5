package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Model configures the language models that explain results and answer chat.
type Model struct {
	Kind      string       `koanf:"kind" doc:"What the service of model.url speaks: openai-chat (chat completions: OpenAI, Ollama, vLLM, OpenRouter and others; openai for short), openai-responses, anthropic-messages (anthropic for short) or gemini-generate."`
	URL       string       `koanf:"url" doc:"Base address of the service, with /v1 for OpenAI's forms and /v1beta for Gemini's; https, or http on this machine. With model.name this is short for one route of class large. Without it and without routes, results are explained by a plain extract and chat answers commands only."`
	Name      string       `koanf:"name" doc:"Name of the model, as the service calls it."`
	KeySecret string       `koanf:"key_secret" doc:"Name of the stored secret that holds the service's key (junctor secrets set NAME). Empty: none is sent."`
	MaxTokens int          `koanf:"max_tokens" doc:"Longest answer, in tokens."`
	PriceIn   int          `koanf:"price_in" doc:"Price of a million tokens of requests, in thousandths of any currency: 3000 is 3. The limits agent.budget.cost count with it."`
	PriceOut  int          `koanf:"price_out" doc:"Price of a million tokens of answers, in thousandths."`
	Routes    []ModelRoute `koanf:"routes" doc:"Services in the order in which they are tried, instead of model.url: if one is overloaded, out of order or too slow before it has said anything, the next one of its class is asked. Class large answers chat, class small explains results; a class without a route uses the other's. As a variable: class kind url name [key_secret], comma-separated."`
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
	PriceOut  int    `koanf:"price_out" doc:"Price of a million tokens of answers, in thousandths."`
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
