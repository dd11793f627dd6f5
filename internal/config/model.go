package config

// Model configures the language model that explains results and answers chat.
type Model struct {
	Kind      string `koanf:"kind" doc:"What the service speaks: openai (chat completions: OpenAI, Ollama, vLLM, OpenRouter and others) or anthropic (messages)."`
	URL       string `koanf:"url" doc:"Base address of the service, with /v1 for openai; https, or http on this machine. Empty: there is no model, results are explained by a plain extract and chat answers commands only."`
	Name      string `koanf:"name" doc:"Name of the model, as the service calls it."`
	KeySecret string `koanf:"key_secret" doc:"Name of the stored secret that holds the service's key (junctor secrets set NAME). Empty: none is sent."`
	MaxTokens int    `koanf:"max_tokens" doc:"Longest answer, in tokens."`
}
