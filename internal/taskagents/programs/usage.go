package programs

import (
	"bytes"
	"encoding/json"
	"time"
)

// Usage is what a conversation has cost, as its program reports it.
type Usage struct {
	In  int64   `json:"inputTokens"`
	Out int64   `json:"outputTokens"`
	USD float64 `json:"costUsd,omitempty"` // 0 if the program does not report it
}

// Plus returns the sum of u and v.
func (u Usage) Plus(v Usage) Usage { return Usage{u.In + v.In, u.Out + v.Out, u.USD + v.USD} }

// Minus returns the part of u beyond v.
func (u Usage) Minus(v Usage) Usage {
	return Usage{max(0, u.In-v.In), max(0, u.Out-v.Out), max(0, u.USD-v.USD)}
}

// Max returns the larger of each figure. Figures below 0 count as 0.
func (u Usage) Max(v Usage) Usage {
	return Usage{max(0, u.In, v.In), max(0, u.Out, v.Out), max(0, u.USD, v.USD)}
}

// Spent is what one line of a program's record of a conversation reports.
type Spent struct {
	At    time.Time
	ID    string // later lines with this id report about the same answer; "" if no other does
	Total bool   // Usage is that of the whole conversation so far
	Usage
}

// figures holds usage in all spellings of the records. The names with an underscore are those of
// Claude Code and Codex, the short ones those of Gemini CLI and Pi, and the others those of Qwen Code.
type figures struct {
	In     int64 `json:"input_tokens"`
	Read   int64 `json:"cache_read_input_tokens"` // beside In, as for Pi; elsewhere a part of it
	Create int64 `json:"cache_creation_input_tokens"`
	Out    int64 `json:"output_tokens"`

	Input, CacheRead, CacheWrite, Tool, Output, Thoughts       int64
	PromptTokenCount, CandidatesTokenCount, ThoughtsTokenCount int64

	Cost struct{ Total float64 }
}

func (f figures) usage() Usage {
	return Usage{
		In:  f.In + f.Read + f.Create + f.Input + f.CacheRead + f.CacheWrite + f.Tool + f.PromptTokenCount,
		Out: f.Out + f.Output + f.Thoughts + f.CandidatesTokenCount + f.ThoughtsTokenCount, USD: f.Cost.Total,
	}.Max(Usage{})
}

// ReadSpent parses a line of a record: of Claude Code, Codex, Gemini CLI, Qwen Code or Pi. ok is false
// if the line does not report usage.
func ReadSpent(line []byte) (s Spent, ok bool) {
	if !bytes.Contains(line, []byte("oken")) { // most lines, some of which are long
		return s, false
	}
	var r struct {
		ID, UUID  string
		Timestamp time.Time
		Message   struct {
			ID    string
			Usage figures
		}
		Tokens, UsageMetadata figures
		Payload               struct {
			Type string
			Info struct {
				Total figures `json:"total_token_usage"`
			}
		}
	}
	if json.Unmarshal(line, &r) != nil {
		return s, false
	}
	s = Spent{At: r.Timestamp, ID: r.Message.ID + r.ID + r.UUID}
	if s.Total = r.Payload.Type == "token_count"; s.Total {
		s.Usage = r.Payload.Info.Total.usage()
	} else {
		s.Usage = r.Message.Usage.usage().Plus(r.Tokens.usage()).Plus(r.UsageMetadata.usage())
	}
	return s, s.Usage != Usage{}
}
