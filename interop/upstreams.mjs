// What an agent does with real upstreams, run by each official TypeScript client
// over each transport:
//
//   node upstreams.mjs v1|v2-legacy|v2-modern http|stdio work|web
//
// It finds the server as client.mjs does; the last word is the view. What it sees
// goes to stdout, one JSON line a step; after "asked" it waits for a line on stdin,
// and after "ready" for the tool that the test adds meanwhile.
import { createInterface } from 'node:readline';

const [kind, transport, view] = process.argv.slice(2);
const { INTEROP_URL, INTEROP_TOKEN, INTEROP_BIN, INTEROP_HOME, INTEROP_FILES } = process.env;

const v1 = kind === 'v1';
const modern = kind === 'v2-modern';
const sdk = v1
  ? {
      ...(await import('@modelcontextprotocol/sdk/client/index.js')),
      ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
      ...(await import('@modelcontextprotocol/sdk/client/stdio.js')),
      ...(await import('@modelcontextprotocol/sdk/types.js')),
    }
  : { ...(await import('@modelcontextprotocol/client')), ...(await import('@modelcontextprotocol/client/stdio')) };

// signal is a promise that others fulfil, at most waited for half a minute.
function signal(name) {
  const s = {};
  s.wait = new Promise((resolve, reject) => {
    s.tell = resolve;
    setTimeout(() => reject(new Error(`no ${name} within 30 s`)), 30_000).unref();
  });
  s.wait.catch(() => {});
  return s;
}

let changed = signal('list change');
const updated = signal('update');
const questions = [];

const client = new sdk.Client(
  { name: `interop-${kind}`, version: '1.0.0' },
  {
    capabilities: { elicitation: { form: {} } },
    listChanged: { tools: { autoRefresh: false, debounceMs: 10, onChanged: () => changed.tell() } },
    ...(modern ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {}),
  },
);
const answer = (request) => {
  questions.push(request.params.message);
  const ours = 'decision' in request.params.requestedSchema.properties;
  return { action: 'accept', content: ours ? { decision: 'once' } : { name: 'Ada', check: true } };
};
const onUpdated = (notice) => updated.tell(notice.params.uri);
if (v1) {
  client.setRequestHandler(sdk.ElicitRequestSchema, answer);
  client.setNotificationHandler(sdk.ResourceUpdatedNotificationSchema, onUpdated);
} else {
  client.setRequestHandler('elicitation/create', answer);
  client.setNotificationHandler('notifications/resources/updated', onUpdated);
}
client.onerror = (err) => console.error(`${kind} ${transport}: ${err.message}`);
await client.connect(
  transport === 'http'
    ? new sdk.StreamableHTTPClientTransport(new URL(`${INTEROP_URL}/${view}`), {
        requestInit: { headers: { Authorization: `Bearer ${INTEROP_TOKEN}` } },
      })
    : new sdk.StdioClientTransport({ command: INTEROP_BIN, args: ['--home', INTEROP_HOME, 'mcp', '--view', view], stderr: 'inherit' }),
);

const say = (step, value) => console.log(JSON.stringify({ step, ...value }));
const call = (name, args, options) =>
  v1 ? client.callTool({ name, arguments: args }, undefined, options) : client.callTool({ name, arguments: args }, options);
const text = (result) => ({ text: result.content.map((c) => c.text ?? '').join('\n'), isError: result.isError === true });
const tools = async () => (await client.listTools({}, modern ? { cacheMode: 'refresh' } : undefined)).tools.map((tool) => tool.name);

say('connected', {
  server: client.getServerVersion().name,
  version: client.getNegotiatedProtocolVersion?.() ?? client.transport?.protocolVersion,
});
say('tools', { names: await tools() });
say('echo', text(await call('echo', { message: 'hello' })));
const progress = [];
say('long', { ...text(await call('trigger-long-running-operation', { duration: 0.8, steps: 4 }, { onprogress: (p) => progress.push(p.progress) })), progress });
say('prompts', { names: (await client.listPrompts()).prompts.map((p) => p.name) });
const prompt = await client.getPrompt({ name: 'args-prompt', arguments: { city: 'Paris' } });
say('prompt', { text: prompt.messages[0].content.text });
const resources = (await client.listResources()).resources.map((r) => r.uri);
const templates = (await client.listResourceTemplates()).resourceTemplates.map((t) => t.uriTemplate);
say('resources', { names: [...resources, ...templates] });
const read = async (uri) => (await client.readResource({ uri })).contents[0].text;
say('read', { names: [await read('demo://resource/static/document/features.md'), await read('demo://resource/dynamic/text/7')] });
const complete = async (ref, name, value) => (await client.complete({ ref, argument: { name, value } })).completion.values;
say('completion', { names: await complete({ type: 'ref/prompt', name: 'completable-prompt' }, 'department', 'E') });

const uri = 'demo://resource/static/document/features.md';
const subscription = modern ? await client.listen({ resourceSubscriptions: [uri] }) : await client.subscribeResource({ uri });
await call('toggle-subscriber-updates', {});
say('updated', { text: await updated.wait });
await call('toggle-subscriber-updates', {});
await (modern ? subscription.close() : client.unsubscribeResource({ uri }));

say('elicited', { ...text(await call('trigger-elicitation-request', {})), names: questions.splice(0) });

if (view === 'work') {
  const path = `${INTEROP_FILES}/${kind}-${transport}.txt`;
  const write = { path, content: `written by ${kind}` };
  say('asked', text(await call('write_file', write)));
  const input = createInterface({ input: process.stdin });
  await new Promise((resolve) => input.once('line', resolve));
  input.close();
  say('written', text(await call('write_file', write)));
  say('file', text(await call('read_text_file', { path })));
  await call('create_entities', { entities: [{ name: `${kind}-${transport}`, entityType: 'client', observations: ['was here'] }] });
  say('memory', text(await call('read_graph', {})));
  changed = signal('list change');
  say('ready', {});
  await changed.wait;
  say('changed', { names: await tools() });
  const thought = { thought: 'one step', nextThoughtNeeded: false, thoughtNumber: 1, totalThoughts: 1 };
  say('thought', { ...text(await call('sequentialthinking', thought)), names: questions.splice(0) });
}
await client.close();
say('closed', {});
process.exit(0); // a keep-alive socket must not hold the process
