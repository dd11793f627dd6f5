// How an agent gives work to task agents, as the official JavaScript SDK of A2A sees it.
// It finds the server in INTEROP_BASE and INTEROP_TOKEN. What it sees goes to stdout, one
// JSON line a step; after "asked" and "works" it waits for a line on stdin.
import { createInterface } from 'node:readline';
import { AgentCard, SendMessageRequest, Task, TaskState } from '@a2a-js/sdk';
import { ClientFactory, JsonRpcTransportFactory } from '@a2a-js/sdk/client';

const { INTEROP_BASE, INTEROP_TOKEN } = process.env;
const say = (step, value) => console.log(JSON.stringify({ step, ...value }));
const lines = createInterface({ input: process.stdin })[Symbol.asyncIterator]();
const fetchImpl = (input, init = {}) => {
  const headers = new Headers(init.headers ?? (input instanceof Request ? input.headers : undefined));
  headers.set('Authorization', `Bearer ${INTEROP_TOKEN}`);
  return fetch(input, { ...init, headers });
};
const card = AgentCard.fromJSON(await (await fetch(`${INTEROP_BASE}/.well-known/agent-card.json`)).json());
card.supportedInterfaces = card.supportedInterfaces.filter((i) => i.protocolBinding === 'JSONRPC' && i.protocolVersion === '1.0');
const client = await new ClientFactory({ transports: [new JsonRpcTransportFactory({ fetchImpl })] }).createFromAgentCard(card);

const unwrap = (result) => result.payload?.value ?? result.task ?? result;
const state = (task) => TaskState[task.status.state];
const show = (task) => ({ id: task.id, state: state(task), text: JSON.stringify(Task.toJSON(task)) });
const message = (parts, more = {}, configuration = {}) =>
  client.sendMessage(SendMessageRequest.fromJSON({ message: { messageId: crypto.randomUUID(), role: 'ROLE_USER', parts, ...more }, configuration })).then(unwrap);
const reach = async (id, want) => {
  for (const until = Date.now() + 45_000; ;) {
    const task = unwrap(await client.getTask({ id, tenant: '' }));
    if (state(task) === want) return task;
    if (Date.now() > until) throw new Error(`not ${want} in time: ${show(task).text}`);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
};

const asked = await message([{ data: { capability: 'CREATE_TASK', arguments: { agentType: 'shell', task: 'sleep 600' } } }]);
say('asked', show(asked));
await lines.next();
const made = await reach(asked.id, 'TASK_STATE_COMPLETED');
say('made', show(made));
const handle = JSON.stringify(Task.toJSON(made).artifacts).match(/tsk_[0-9a-f]+/)[0];
say('works', show(await reach(handle, 'TASK_STATE_WORKING')));
await lines.next();
const paused = await reach(handle, 'TASK_STATE_INPUT_REQUIRED');
say('paused', show(paused));
// Waiting for what comes of it would be waiting for the task's end.
say('answered', show(await message([{ text: 'resume' }], { taskId: handle }, { returnImmediately: true })));
say('resumed', show(await reach(handle, 'TASK_STATE_WORKING')));
say('cancelled', show(unwrap(await client.cancelTask({ id: handle, tenant: '' }))));
process.exit(0);
