package modelwire

import (
	"cmp"
	"errors"
	"strconv"
	"strings"

	"github.com/junctor-run/junctor/internal/base/jsonx"
)

// Gemini's generateContent. Its calls may have no IDs, which Decode then makes up.

type generateRequest struct {
	System     *generateContent `json:"systemInstruction,omitzero"`
	Tools      []generateTools  `json:"tools,omitzero"`
	ToolConfig *generateConfig  `json:"toolConfig,omitzero"`
	Config     generateOutput   `json:"generationConfig"`
}

type generateContent struct {
	Role  string         `json:"role,omitzero"`
	Parts []generatePart `json:"parts"`
}

type generatePart struct {
	Text     string          `json:"text,omitzero"`
	Call     *generateCall   `json:"functionCall,omitzero"`
	Response *generateResult `json:"functionResponse,omitzero"`
}

type generateCall struct {
	ID   string    `json:"id,omitzero"`
	Name string    `json:"name"`
	Args jsonx.Raw `json:"args"`
}

type generateResult struct {
	ID       string            `json:"id,omitzero"`
	Name     string            `json:"name"`
	Response map[string]string `json:"response"`
}

type generateTools struct {
	Functions []generateFunction `json:"functionDeclarations"`
}

type generateFunction struct {
	Name        string    `json:"name"`
	Description string    `json:"description,omitzero"`
	Parameters  jsonx.Raw `json:"parametersJsonSchema"`
}

type generateConfig struct {
	Calling generateCalling `json:"functionCallingConfig"`
}

type generateCalling struct {
	Mode string `json:"mode"`
}

type generateOutput struct {
	MaxTokens int               `json:"maxOutputTokens,omitzero"`
	Type      string            `json:"responseMimeType,omitzero"`
	Schema    jsonx.Raw         `json:"responseJsonSchema,omitzero"`
	Thinking  *generateThinking `json:"thinkingConfig,omitzero"`
}

type generateThinking struct {
	Level string `json:"thinkingLevel"`
}

// madeID begins the ID of a call to which the service gave none.
const madeID = "unnamed-"

func sentID(id string) string {
	if strings.HasPrefix(id, madeID) {
		return ""
	}
	return id
}

func encodeGenerate(r Request) ([]byte, error) {
	body := generateRequest{Config: generateOutput{MaxTokens: r.MaxTokens}}
	if r.Effort != "" {
		body.Config.Thinking = &generateThinking{strings.ToUpper(r.Effort)}
	}
	if r.Schema != nil {
		body.Config.Type, body.Config.Schema = "application/json", r.Schema.Schema
	}
	if len(r.System) > 0 {
		body.System = &generateContent{}
		for _, s := range r.System {
			body.System.Parts = append(body.System.Parts, generatePart{Text: s})
		}
	}
	if len(r.Tools) > 0 {
		body.Tools = make([]generateTools, 1)
		for _, t := range r.Tools {
			body.Tools[0].Functions = append(body.Tools[0].Functions, generateFunction{t.Name, t.Description, t.schema()})
		}
		if r.Choice != MayCall {
			mode := map[Choice]string{MustCall: "ANY", MustNotCall: "NONE"}[r.Choice]
			body.ToolConfig = &generateConfig{generateCalling{mode}}
		}
	}
	var contents []jsonx.Raw
	for _, m := range r.Messages {
		if m.sentBy(GeminiGenerate) {
			contents = append(contents, m.Raw)
			continue
		}
		content := generateContent{Role: map[Role]string{User: "user", Assistant: "model"}[m.Role]}
		for _, b := range m.Blocks {
			switch b.Kind {
			case Text:
				content.Parts = append(content.Parts, generatePart{Text: b.Text})
			case Call:
				content.Parts = append(content.Parts, generatePart{Call: &generateCall{sentID(b.ID), b.Name, b.object()}})
			case Result:
				name := "output"
				if b.Failed {
					name = "error"
				}
				content.Parts = append(content.Parts, generatePart{
					Response: &generateResult{sentID(b.ID), b.Name, map[string]string{name: b.Text}},
				})
			default:
			}
		}
		if len(content.Parts) == 0 {
			continue
		}
		data, err := jsonx.Marshal(content)
		if err != nil {
			return nil, err
		}
		contents = append(contents, data)
	}
	return withList(body, "contents", contents)
}

type generateAnswer struct {
	Candidates []struct {
		Content jsonx.Raw `json:"content"`
		Finish  string    `json:"finishReason"`
	} `json:"candidates"`
	Feedback *struct {
		Blocked string `json:"blockReason"`
	} `json:"promptFeedback"`
	Model string `json:"modelVersion"`
	Usage *struct {
		Prompt     int `json:"promptTokenCount"`
		Candidates int `json:"candidatesTokenCount"`
		Thoughts   int `json:"thoughtsTokenCount"`
		Cached     int `json:"cachedContentTokenCount"`
	} `json:"usageMetadata"`
	Error jsonx.Raw `json:"error"`
}

// facts records everything but the content.
func (w *generateAnswer) facts(r *Reply) {
	if w.Model != "" {
		r.Model = w.Model
	}
	if u := w.Usage; u != nil {
		r.Usage = Usage{In: u.Prompt, Out: u.Candidates + u.Thoughts, CacheRead: u.Cached, Reasoning: u.Thoughts}
	}
	switch {
	case w.Feedback != nil && w.Feedback.Blocked != "":
		r.Stop = StopRefused
	case len(w.Candidates) > 0 && w.Candidates[0].Finish != "":
		r.Stop = generateStop(w.Candidates[0].Finish)
	}
}

func generateStop(reason string) Stop {
	switch reason {
	case "STOP":
		return StopEnd
	case "MAX_TOKENS":
		return StopLength
	case "SAFETY", "RECITATION", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY":
		return StopRefused
	}
	return StopOther
}

func decodeGenerate(data []byte) (Reply, error) {
	var w generateAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return Reply{}, err
	}
	if err := serviceError(w.Error); err != nil {
		return Reply{}, err
	}
	var r Reply
	w.facts(&r)
	if len(w.Candidates) == 0 {
		if r.Stop != StopRefused {
			return Reply{}, errors.New("it has no candidates")
		}
		r.Message.Role = Assistant
		return r, nil
	}
	r.Stop = cmp.Or(r.Stop, StopEnd)
	return generateReply(r, w.Candidates[0].Content)
}

// generateReply decodes the content of a candidate, which is missing if the model produced nothing.
func generateReply(r Reply, raw jsonx.Raw) (Reply, error) {
	r.Message = Message{Role: Assistant}
	if len(raw) == 0 {
		return r, nil
	}
	var content struct {
		Parts jsonx.Raw `json:"parts"`
	}
	if err := jsonx.Unmarshal(raw, &content); err != nil {
		return Reply{}, err
	}
	if len(content.Parts) == 0 || string(content.Parts) == "[]" {
		return r, nil
	}
	r.Message.Form, r.Message.Raw = GeminiGenerate, raw
	err := jsonx.Elements(content.Parts, func(part []byte) error {
		var p struct {
			Text    *string `json:"text"`
			Thought bool    `json:"thought"`
			Call    *struct {
				ID   string    `json:"id"`
				Name string    `json:"name"`
				Args jsonx.Raw `json:"args"`
			} `json:"functionCall"`
		}
		if err := jsonx.Unmarshal(part, &p); err != nil {
			return err
		}
		b := Block{Kind: Opaque}
		switch {
		case p.Call != nil:
			b = Block{Kind: Call, ID: p.Call.ID, Name: p.Call.Name, Input: string(p.Call.Args)}
			b.Input = cmp.Or(b.Input, "{}")
			if b.ID == "" {
				b.ID = madeID + strconv.Itoa(len(r.Message.Calls())+1)
			}
		case p.Text != nil && p.Thought:
			b = Block{Kind: Thinking, Text: *p.Text}
		case p.Text != nil:
			b = Block{Kind: Text, Text: *p.Text}
		}
		r.Message.Blocks = append(r.Message.Blocks, b)
		return nil
	})
	r.Stop = stopOr(r.Stop, r.Message)
	return r, err
}

// generateStream assembles the responses of streamGenerateContent, each of which contains
// further parts.
type generateStream struct {
	got   Reply
	parts []jsonx.Raw
	calls int
}

func (s *generateStream) event(data []byte, emit func(Delta)) (bool, error) {
	var w generateAnswer
	if err := jsonx.Unmarshal(data, &w); err != nil {
		return false, err
	}
	if err := serviceError(w.Error); err != nil {
		return false, err
	}
	w.facts(&s.got)
	if len(w.Candidates) == 0 {
		return false, nil
	}
	piece, err := generateReply(Reply{}, w.Candidates[0].Content)
	if err != nil {
		return false, err
	}
	for _, b := range piece.Message.Blocks {
		switch b.Kind {
		case Call:
			emit(Delta{Kind: Call, Call: s.calls, Name: b.Name, Text: b.Input})
			s.calls++
		case Text, Thinking:
			emit(Delta{Kind: b.Kind, Text: b.Text})
		default:
		}
	}
	var content struct {
		Parts jsonx.Raw `json:"parts"`
	}
	if len(piece.Message.Raw) == 0 {
		return false, nil
	}
	if err := jsonx.Unmarshal(piece.Message.Raw, &content); err != nil {
		return false, err
	}
	return false, jsonx.Elements(content.Parts, func(part []byte) error {
		s.parts = append(s.parts, jsonx.Raw(part).Clone())
		return nil
	})
}

func (s *generateStream) reply() (Reply, error) {
	if len(s.parts) == 0 {
		s.got.Message.Role = Assistant
		return s.got, nil
	}
	raw := append(append([]byte(`{"role":"model","parts":`), list(s.parts)...), '}')
	return generateReply(s.got, raw)
}
