package agent

import (
	"encoding/json"
	"fmt"
	"os"
	"strings"

	"github.com/junctor-run/junctor/capability"
	"github.com/junctor-run/junctor/internal/base/text"
)

// lines is a string or a list of strings.
type lines []string

// UnmarshalJSON implements [json.Unmarshaler].
func (l *lines) UnmarshalJSON(data []byte) error {
	var one string
	if json.Unmarshal(data, &one) == nil {
		*l = lines{one}
		return nil
	}
	return json.Unmarshal(data, (*[]string)(l))
}

// ReadCharacter returns the part of a prompt that describes who the agent is: from a character file
// of elizaOS (JSON), of which it uses name, system, bio, lore, adjectives, topics, style and
// messageExamples, or from any other text, as it is. Errors: invalid_input.
func ReadCharacter(path string) (string, error) {
	invalid := func(cause error, format string, args ...any) (string, error) {
		return "", capability.Wrap(capability.CodeInvalidInput, "agent", fmt.Sprintf(format, args...), cause).
			With("invalid_settings", "correct the file that agent.character names")
	}
	info, err := os.Stat(path)
	if err == nil && info.Size() > maxCharacter {
		return invalid(nil, "the character in %s has more than %d bytes", path, maxCharacter)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return invalid(err, "the character in %s cannot be read", path)
	}
	persona := strings.TrimSpace(string(data))
	if strings.HasPrefix(persona, "{") {
		if persona, err = personaOf(data); err != nil {
			return invalid(err, "the character in %s is not a character file: %s", path, err)
		}
	}
	return text.ClipBytes(persona, maxPersona), nil
}

// Persona returns a character's text as it stands before [Duty].
func Persona(character string) string {
	if character = strings.TrimSpace(character); character != "" {
		character += "\n\n"
	}
	return character
}

// personaOf returns the text of a character file.
func personaOf(data []byte) (string, error) {
	var c struct {
		Name       string `json:"name"`
		System     string `json:"system"`
		Bio        lines  `json:"bio"`
		Lore       lines  `json:"lore"`
		Adjectives lines  `json:"adjectives"`
		Topics     lines  `json:"topics"`
		Style      struct {
			All  lines `json:"all"`
			Chat lines `json:"chat"`
		} `json:"style"`
		MessageExamples [][]struct {
			Name    string `json:"name"`
			User    string `json:"user"` // its former name
			Content struct {
				Text string `json:"text"`
			} `json:"content"`
		}
	}
	if err := json.Unmarshal(data, &c); err != nil {
		return "", err
	}
	if c.Name == "" {
		return "", fmt.Errorf("it has no name")
	}
	var b strings.Builder
	fmt.Fprintf(&b, "You are %s.\n", c.Name)
	paragraph := func(title string, list lines, separator string) {
		if len(list) > 0 {
			fmt.Fprintf(&b, "\n%s%s\n", title, strings.Join(list[:min(len(list), maxBio)], separator))
		}
	}
	if c.System != "" {
		fmt.Fprintf(&b, "\n%s\n", c.System)
	}
	paragraph("", c.Bio, "\n")
	paragraph("", c.Lore, "\n")
	paragraph("You are: ", c.Adjectives, ", ")
	paragraph("You know about: ", c.Topics, ", ")
	paragraph("How you write:\n- ", append(c.Style.All, c.Style.Chat...), "\n- ")
	for _, conversation := range c.MessageExamples[:min(len(c.MessageExamples), maxExamples)] {
		b.WriteString("\nAn example:\n")
		for _, m := range conversation[:min(len(conversation), maxBio)] {
			name := m.Name
			if name == "" {
				name = m.User
			}
			fmt.Fprintf(&b, "%s: %s\n", name, m.Content.Text)
		}
	}
	return strings.NewReplacer("{{agentName}}", c.Name, "{{name1}}", "Ann", "{{user1}}", "Ann", "{{name2}}", "Ben").Replace(b.String()), nil
}
