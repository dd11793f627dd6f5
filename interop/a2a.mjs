// The A2A door as the official JavaScript SDK sees it:
//
//   node a2a.mjs 1.0-rpc|1.0-rest|0.3
//
// It finds the server in INTEROP_BASE and INTEROP_TOKEN. What it sees goes to stdout,
// one JSON line a step.
import { AgentCard, SendMessageRequest, Task, TaskState, verifyAgentCardSignature } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory, RestTransportFactory } from '@a2a-js/sdk/client';

const [kind] = process.argv.slice(2);
const { INTEROP_BASE, INTEROP_TOKEN } = process.env;
const say = (step, value) => console.log(JSON.stringify({ step, ...value }));

const fetchImpl = (input, init = {}) => {
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set('Authorization', `Bearer ${INTEROP_TOKEN}`);
  return fetch(input, { ...init, headers });
};

const raw = await (await fetch(`${INTEROP_BASE}/.well-known/agent-card.json`)).json();
const keys = await (await fetch(`${INTEROP_BASE}/.well-known/jwks.json`)).json();
const key = (kid) => crypto.subtle.importKey('jwk', keys.keys.find((k) => k.kid === kid), { name: 'ECDSA', namedCurve: 'P-256' }, false, ['verify']);
await verifyAgentCardSignature(key)(raw);
say('verified', {});

const want = { '1.0-rpc': ['JSONRPC', '1.0'], '1.0-rest': ['HTTP+JSON', '1.0'], 0.3: ['JSONRPC', '0.3'] }[kind];
const card = AgentCard.fromJSON(raw);
card.supportedInterfaces = card.supportedInterfaces.filter((i) => i.protocolBinding === want[0] && i.protocolVersion === want[1]);
const legacyCompat = { enabled: kind === '0.3' };
const transports = want[0] === 'JSONRPC' ? [new JsonRpcTransportFactory({ fetchImpl, legacyCompat })] : [new RestTransportFactory({ fetchImpl, legacyCompat })];
const client = await new ClientFactory({ transports, preferredTransports: [want[0]] }).createFromAgentCard(card);

const request = (capability, args, more = {}, config = {}) =>
  SendMessageRequest.fromJSON({
    message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts: [{ data: { capability, arguments: args } }], ...more },
    configuration: config,
  });
const unwrap = (result) => result.payload?.value ?? result.task ?? result;
const state = (task) => TaskState[task.status.state];
const show = (task) => ({ id: task.id, state: state(task), text: JSON.stringify(Task.toJSON(task).artifacts ?? []) });

const sent = unwrap(await client.sendMessage(request('fs_list', { path: '.' })));
say('sent', show(sent));

const events = [];
for await (const e of client.sendMessageStream(request('fs_list', { path: '.' }))) {
  events.push(e.payload?.$case ?? Object.keys(e).find((k) => e[k] !== undefined));
}
say('streamed', { names: events });

const got = await client.getTask({ id: sent.id, tenant: '' });
say('got', show(unwrap(got)));

if (kind !== '0.3') {
  const list = await client.listTasks({ tenant: '', contextId: '', status: 0, pageToken: '', pageSize: 1 });
  say('listed', { names: list.tasks.map((t) => t.id), text: String(list.totalSize) });
}

const asked = unwrap(
  await client.sendMessage(
    SendMessageRequest.fromJSON({ message: { messageId: 'm', role: 'ROLE_USER', parts: [{ text: 'do something' }] } }),
  ),
);
say('asked', show(asked));
const seen = [];
for await (const e of client.resubscribeTask({ id: asked.id, tenant: '' })) {
  seen.push(e.payload?.$case ?? 'event');
  if (seen.length === 1) say('cancelled', show(unwrap(await client.cancelTask({ id: asked.id, tenant: '' }))));
}
say('subscribed', { names: seen });

try {
  await client.getTask({ id: 'tsk_0', tenant: '' });
  say('unknown', { text: 'found' });
} catch (err) {
  say('unknown', { text: `${err.name} ${err.message}` });
}
