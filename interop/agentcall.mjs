// An A2A agent behind the server, as the official TypeScript clients of MCP call it:
//
//   node agentcall.mjs v1|v2-legacy|v2-modern TOOL
//
// It finds the server in INTEROP_URL and INTEROP_TOKEN. What it sees goes to stdout,
// one JSON line a step.
const [kind, name] = process.argv.slice(2);
const { INTEROP_URL, INTEROP_TOKEN } = process.env;
const v1 = kind === 'v1';
const sdk = v1
  ? {
      ...(await import('@modelcontextprotocol/sdk/client/index.js')),
      ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      ...(await import('@modelcontextprotocol/sdk/types.js')),
    }
  : await import('@modelcontextprotocol/client');
const say = (step, value) => console.log(JSON.stringify({ step, ...value }));

const options = kind === 'v2-modern' ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {};
const client = new sdk.Client({ name: `agentcall-${kind}`, version: '1.0.0' }, { capabilities: { elicitation: { form: {} } }, ...options });
client.setRequestHandler(v1 ? sdk.ElicitRequestSchema : 'elicitation/create', async (request) => {
  say('question', { text: request.params.message });
  return { action: 'accept', content: { answer: 'that one' } };
});
client.onerror = (err) => console.error(`${kind}: ${err.message}`);
await client.connect(
  new sdk.StreamableHTTPClientTransport(new URL(INTEROP_URL), { requestInit: { headers: { Authorization: `Bearer ${INTEROP_TOKEN}` } } }),
);
const { tools } = await client.listTools();
say('tools', { names: tools.map((tool) => tool.name) });

const call = (message, more = {}) => {
  const params = { name, arguments: { message } };
  return v1 ? client.callTool(params, undefined, more) : client.callTool(params, more);
};
const show = (result) => ({ text: JSON.stringify(result.content), isError: result.isError === true });
const progress = [];
say('done', show(await call('go', { onprogress: (p) => progress.push(p.message) })));
say('progress', { names: progress });
say('answered', show(await call('ask')));

const stop = new AbortController();
const waiting = call('wait', { signal: stop.signal, onprogress: () => stop.abort() });
try {
  say('cancelled', show(await waiting));
} catch (err) {
  say('cancelled', { text: `${err.name}` });
}
await new Promise((resolve) => setTimeout(resolve, 200)); // the notification has to leave
await client.close();
process.exit(0);
