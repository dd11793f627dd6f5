// An A2A agent of the official JavaScript SDK, as a process of its own:
//
//   node agent.mjs 1.0-rpc|1.0-rest|0.3
//
// It signs its card. Its address and its public key are one JSON line on stdout, and
// each message and each cancellation that reaches it is one more.
import { createServer } from 'node:http';
import express from 'express';
import { exportJWK, generateKeyPair } from 'jose';
import { AgentCard, generateAgentCardSignature, Message, Task, TaskArtifactUpdateEvent, TaskStatusUpdateEvent } from '@a2a-js/sdk';
import { AgentEvent, DefaultRequestHandler, InMemoryTaskStore } from '@a2a-js/sdk/server';
import { agentCardHandler, jsonRpcHandler, restHandler, UserBuilder } from '@a2a-js/sdk/server/express';

const [kind] = process.argv.slice(2);
const say = (value) => console.log(JSON.stringify(value));
const [binding, version] = { '1.0-rpc': ['JSONRPC', '1.0'], '1.0-rest': ['HTTP+JSON', '1.0'], 0.3: ['JSONRPC', '0.3'] }[kind];

const stops = new Map();

const executor = {
  async execute(context, bus) {
    const { taskId, contextId, userMessage, task } = context;
    const text = userMessage.parts.map((p) => p.content?.value ?? '').join(' ');
    say({ message: text, skill: userMessage.metadata?.skillId ?? '' });
    const status = (state, words) => ({
      state,
      message: words && { messageId: crypto.randomUUID(), role: 'ROLE_AGENT', taskId, contextId, parts: [{ text: words }] },
      timestamp: new Date().toISOString(),
    });
    const update = (state, words) => bus.publish(AgentEvent.statusUpdate(TaskStatusUpdateEvent.fromJSON({ taskId, contextId, status: status(state, words) })));
    const artifact = (parts, more = {}) =>
      bus.publish(AgentEvent.artifactUpdate(TaskArtifactUpdateEvent.fromJSON({ taskId, contextId, artifact: { artifactId: 'a', parts }, ...more })));
    bus.publish(
      AgentEvent.task(task ?? Task.fromJSON({ id: taskId, contextId, status: status('TASK_STATE_SUBMITTED'), history: [Message.toJSON(userMessage)] })),
    );
    if (task) {
      artifact([{ text: `you said ${text}` }]);
      update('TASK_STATE_COMPLETED');
    } else if (text === 'ask') {
      update('TASK_STATE_INPUT_REQUIRED', 'which one?');
    } else if (text === 'wait') {
      update('TASK_STATE_WORKING', 'on it');
      await new Promise((resolve) => stops.set(taskId, resolve));
      update('TASK_STATE_CANCELED');
    } else {
      update('TASK_STATE_WORKING', 'half way');
      artifact([{ text: 'do' }]);
      artifact([{ text: 'ne' }, { data: { n: 7 } }], { append: true, lastChunk: true });
      update('TASK_STATE_COMPLETED');
    }
    bus.finished();
  },
  async cancelTask(taskId) {
    say({ cancelled: taskId });
    stops.get(taskId)?.();
  },
};

const app = express();
const server = createServer(app).listen(0, '127.0.0.1', async () => {
  const url = `http://127.0.0.1:${server.address().port}`;
  const { publicKey, privateKey } = await generateKeyPair('ES256', { extractable: true });
  const card = AgentCard.fromJSON({
    name: 'peer',
    description: 'An agent of the tests.',
    version: '1.2.3',
    capabilities: { streaming: true },
    defaultInputModes: ['text/plain'],
    defaultOutputModes: ['text/plain'],
    supportedInterfaces: [{ url: `${url}/a2a`, protocolBinding: binding, protocolVersion: version }],
    skills: [{ id: 'do it', name: 'Do it', description: 'Does it.', tags: ['x'] }],
  });
  const signed = await generateAgentCardSignature(privateKey, { alg: 'ES256', typ: 'JOSE', kid: 'k' })(card);
  const requestHandler = new DefaultRequestHandler(signed, new InMemoryTaskStore(), executor);
  const options = { requestHandler, userBuilder: UserBuilder.noAuthentication, legacyCompat: { enabled: kind === '0.3' } };
  app.use('/.well-known/agent-card.json', agentCardHandler({ agentCardProvider: requestHandler, legacyCompat: { enabled: kind === '0.3' } }));
  app.use('/a2a', binding === 'JSONRPC' ? jsonRpcHandler(options) : restHandler(options));
  say({ url, key: { ...(await exportJWK(publicKey)), kid: 'k', alg: 'ES256' } });
});
