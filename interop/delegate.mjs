// How an agent gives work to task agents, as the official TypeScript clients of MCP see
// it:
//
//   node delegate.mjs v1|v2-legacy|v2-modern
//
// It finds the server in INTEROP_URL and INTEROP_TOKEN. What it sees goes to stdout, one
// JSON line a step; before it repeats the call that needs an approval it waits for a line
// on stdin.
import { createInterface } from 'node:readline';

const [kind] = process.argv.slice(2);
const { INTEROP_URL, INTEROP_TOKEN } = process.env;
const sdk =
  kind === 'v1'
    ? {
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      }
    : await import('@modelcontextprotocol/client');
const options = kind === 'v2-modern' ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {};
const client = new sdk.Client({ name: `delegate-${kind}`, version: '1.0.0' }, { capabilities: {}, ...options });
await client.connect(
  new sdk.StreamableHTTPClientTransport(new URL(INTEROP_URL), { requestInit: { headers: { Authorization: `Bearer ${INTEROP_TOKEN}` } } }),
);

const say = (step, value) => console.log(JSON.stringify({ step, ...value }));
const text = (result) => ({ text: result.content[0].text, isError: result.isError === true });
const call = (name, args) => client.callTool({ name, arguments: args });

const { tools } = await client.listTools();
say('tools', { names: tools.map((tool) => tool.name) });
say('found', text(await call('catalog_search', { query: 'delegate coding' })));
const task = { agentType: 'shell', task: `echo it is ${kind}` };
say('asked', text(await call('CREATE_TASK', task)));
const input = createInterface({ input: process.stdin });
await new Promise((resolve) => input.once('line', resolve));
input.close();
const made = await call('CREATE_TASK', task);
say('made', { ...text(made), id: made.structuredContent.task });
for (;;) {
  const history = await call('TASK_HISTORY', { metric: 'detail', threadId: made.structuredContent.data.threadId });
  if (history.isError || !/active|open|validating/.test(history.structuredContent.data.status ?? history.content[0].text)) {
    say('history', text(history));
    break;
  }
  await new Promise((resolve) => setTimeout(resolve, 100));
}
for (const name of ['context', 'examples']) {
  const { contents } = await client.readResource({ uri: `junctor://task-agents/${name}` });
  say(name, { text: contents[0].text });
}
await client.close();
process.exit(0); // a keep-alive socket must not hold the process
