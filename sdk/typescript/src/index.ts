/**
 * The TypeScript SDK of junctor: a {@link Client} of a server, an endpoint that offers modules, and a node that offers functions.
 *
 * @packageDocumentation
 */
export * from "./errors.js";
export {
  Approvals, Chat, Client, Runs, Tasks,
  type Approval, type ApprovalState, type ApprovalWait, type CallOptions, type Capability, type ChatEvent, type ChatReply,
  type ClientOptions, type Decision, type Described, type Found, type Invocation, type Invoked, type Page, type Progress,
  type RequestOptions, type Run, type RunEvent, type ServerEvent, type Task, type TaskState, type WaitOptions,
} from "./client.js";
