// One scenario, run by each official TypeScript client over each transport:
//
//   node client.mjs v1|v2-legacy|v2-modern http|stdio
//
// It finds the server in INTEROP_URL and INTEROP_TOKEN, or spawns INTEROP_BIN
// with INTEROP_HOME. What it sees goes to stdout, one JSON line a step; before it
// repeats the call that needs an approval it waits for a line on stdin.
import { createInterface } from 'node:readline';

const [kind, transport] = process.argv.slice(2);
const { INTEROP_URL, INTEROP_TOKEN, INTEROP_BIN, INTEROP_HOME } = process.env;

async function connect() {
  const info = { name: `interop-${kind}`, version: '1.0.0' };
  const v1 = kind === 'v1';
  const sdk = v1
    ? {
        ...(await import('@modelcontextprotocol/sdk/client/index.js')),
        ...(await import('@modelcontextprotocol/sdk/client/streamableHttp.js')),
        ...(await import('@modelcontextprotocol/sdk/client/stdio.js')),
      }
    : { ...(await import('@modelcontextprotocol/client')), ...(await import('@modelcontextprotocol/client/stdio')) };
  const options = kind === 'v2-modern' ? { versionNegotiation: { mode: { pin: '2026-07-28' } } } : {};
  const client = new sdk.Client(info, { capabilities: {}, ...options });
  const link =
    transport === 'http'
      ? new sdk.StreamableHTTPClientTransport(new URL(INTEROP_URL), {
          requestInit: { headers: { Authorization: `Bearer ${INTEROP_TOKEN}` } },
        })
      : new sdk.StdioClientTransport({ command: INTEROP_BIN, args: ['--home', INTEROP_HOME, 'mcp'], stderr: 'inherit' });
  client.onerror = (err) => console.error(`${kind} ${transport}: ${err.message}`);
  await client.connect(link);
  return client;
}

const say = (step, value) => console.log(JSON.stringify({ step, ...value }));
const text = (result) => ({ text: result.content[0].text, isError: result.isError === true });

const client = await connect();
say('connected', { server: client.getServerVersion().name, version: client.getNegotiatedProtocolVersion?.() ?? client.transport?.protocolVersion });
const { tools } = await client.listTools();
say('tools', { names: tools.map((tool) => tool.name) });
say('list', text(await client.callTool({ name: 'fs_list', arguments: { selector: { node: 'local' } } })));
say('read', text(await client.callTool({ name: 'fs_readText', arguments: { path: 'there.txt', selector: { endpoint: 'cloud' } } })));
const asked = { name: 'DEVICE_PING', arguments: { text: `${kind} over ${transport}` } };
say('asked', text(await client.callTool(asked)));
const input = createInterface({ input: process.stdin });
await new Promise((resolve) => input.once('line', resolve));
input.close();
say('approved', text(await client.callTool(asked)));
try {
  const unknown = await client.callTool({ name: 'no_such_tool', arguments: {} });
  say('unknown', text(unknown));
} catch (err) {
  say('unknown', { code: err.code, text: err.message });
}
await client.close();
process.exit(0); // a keep-alive socket must not hold the process
