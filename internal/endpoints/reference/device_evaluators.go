package reference

import (
	"context"
	"slices"
	"strings"
)

func (d *device) registerEvaluators(e *Endpoint) {
	on(e, "plugin.responseHandlerEvaluator.shouldRun", deviceID, "device-context", contextShouldRun)
	on(e, "plugin.responseHandlerEvaluator.evaluate", deviceID, "device-context", d.contextEvaluate)
	on(e, "plugin.responseHandlerFieldEvaluator.shouldRun", deviceID, "urgency", urgencyShouldRun)
	on(e, "plugin.responseHandlerFieldEvaluator.parse", deviceID, "urgency", urgencyParse)
	on(e, "plugin.responseHandlerFieldEvaluator.handle", deviceID, "urgency", urgencyHandle)
}

// messageContext is what a response handler knows of the message.
type messageContext struct {
	Context struct {
		Message struct {
			Text    string `json:"text"`
			Content struct {
				Text string `json:"text"`
			} `json:"content"`
		} `json:"message"`
		AvailableContexts []any `json:"availableContexts"`
	} `json:"context"`
	Value any `json:"value"`
}

func (m messageContext) text() string {
	if t := m.Context.Message.Text; t != "" {
		return t
	}
	return m.Context.Message.Content.Text
}

func aboutDevice(text string) bool {
	return slices.ContainsFunc(words(text), func(w string) bool {
		return w == "device" || w == "ping" || w == "uptime" || w == "status"
	})
}

func contextShouldRun(_ context.Context, p messageContext) (any, error) {
	return object{"shouldRun": aboutDevice(p.text())}, nil
}

// contextEvaluate answers with a patch whatever shouldRun said: a caller may
// have reasons of its own to ask.
func (d *device) contextEvaluate(_ context.Context, p messageContext) (any, error) {
	add := []string{}
	// Where the caller states which contexts exist, others must not be added.
	known := len(p.Context.AvailableContexts) == 0 || slices.Contains(p.Context.AvailableContexts, any("device"))
	if aboutDevice(p.text()) && known {
		add = append(add, "device")
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	return object{"patch": object{"addContexts": add, "values": object{"devicePings": d.pings}}}, nil
}

func urgencyShouldRun(_ context.Context, p messageContext) (any, error) {
	return object{"shouldRun": strings.TrimSpace(p.text()) != ""}, nil
}

// level reads an urgency from a word, a number between 0 and 10, or what urgencyParse returned.
func level(value any) (string, bool) {
	switch v := value.(type) {
	case map[string]any:
		l, _ := v["level"].(string)
		return level(l)
	case string:
		l := strings.ToLower(strings.TrimSpace(v))
		return l, slices.Contains([]string{"none", "low", "normal", "high"}, l)
	case float64:
		switch {
		case v < 0 || v > 10:
			return "", false
		case v == 0:
			return "none", true
		case v < 4:
			return "low", true
		case v < 8:
			return "normal", true
		}
		return "high", true
	}
	return "", false
}

func urgencyParse(_ context.Context, p messageContext) (any, error) {
	l, ok := level(p.Value)
	if !ok {
		return object{"softFail": true}, nil
	}
	return object{"value": object{"level": l}}, nil
}

func urgencyHandle(_ context.Context, p messageContext) (any, error) {
	l, ok := level(p.Value) // parsed is the model's whole answer where elizaOS calls
	if !ok {
		return object{"effect": object{"debug": []string{"urgency: the value was not understood"}}}, nil
	}
	effect := object{"patch": object{"urgency": l}, "debug": []string{"urgency: " + l}}
	switch l {
	case "high":
		effect["preempt"] = object{"mode": "ack-and-stop", "reason": "the sender needs an answer at once"}
	case "none":
		effect["preempt"] = object{"mode": "ignore", "reason": "no answer is wanted"}
	}
	return object{"effect": effect}, nil
}
