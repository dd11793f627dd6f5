// Calls a model service with the official SDK of a wire form and prints what the SDK makes of it.
// Arguments: form, base URL. Standard input: the body of a request, as junctor encodes it.
import { readFileSync } from "node:fs";

const [form, url] = process.argv.slice(2);
const body = JSON.parse(readFileSync(0, "utf8"));

async function ask() {
  const openai = async () => new (await import("openai")).default({ apiKey: "none", baseURL: url, maxRetries: 0 });
  switch (form) {
    case "openai-chat": {
      const all = await (await openai()).chat.completions.stream(body).finalChatCompletion();
      return { message: all.choices[0].message, stop: all.choices[0].finish_reason };
    }
    case "openai-responses": {
      const all = await (await openai()).responses.stream(body).finalResponse();
      return { message: all.output, stop: all.status };
    }
    case "anthropic-messages": {
      const anthropic = new (await import("@anthropic-ai/sdk")).default({ apiKey: "none", baseURL: url, maxRetries: 0 });
      const all = await anthropic.messages.stream(body).finalMessage();
      return { message: all.content, stop: all.stop_reason };
    }
    case "gemini-generate": {
      const ai = new (await import("@google/genai")).GoogleGenAI({ apiKey: "none", httpOptions: { baseUrl: url, apiVersion: "v1beta" } });
      const { contents, generationConfig, ...config } = body;
      const stream = await ai.models.generateContentStream({ model: "m-1", contents, config: { ...config, ...generationConfig } });
      const parts = [];
      let stop;
      for await (const piece of stream) {
        parts.push(...(piece.candidates?.[0]?.content?.parts ?? []));
        stop = piece.candidates?.[0]?.finishReason ?? stop;
      }
      return { message: { role: "model", parts }, stop };
    }
  }
}

try {
  console.log(JSON.stringify(await ask()));
} catch (e) {
  console.log(JSON.stringify({ error: String(e.message) }));
}
