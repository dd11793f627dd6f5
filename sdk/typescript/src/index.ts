/**
 * The TypeScript SDK of junctor: a {@link Client} of a server, an endpoint that offers modules, and a node that offers functions.
 *
 * @packageDocumentation
 */
export { errorCodes, JunctorError, type ErrorCode, type ErrorFields } from "./errors.js";
export {
  Approvals, Chat, Client, Runs, Tasks,
  type Approval, type ApprovalState, type ApprovalWait, type CallOptions, type Capability, type ChatEvent, type ChatReply,
  type ClientOptions, type Decision, type Described, type Found, type Invocation, type Invoked, type Page, type Progress,
  type RequestOptions, type Run, type RunEvent, type ServerEvent, type StreamOptions, type Task, type TaskState, type WaitOptions,
} from "./client.js";
export { Endpoint, type EndpointOptions, type Listening } from "./endpoint.js";
export {
  action,
  type Action, type ActionResult, type App, type AppBridge, type Asset, type Awaitable, type CallContext, type ComponentType,
  type Evaluator, type EvaluatorCall, type EventHandler, type FieldCall, type FieldEffect, type FieldEvaluator, type JSONObject,
  type Lifecycle, type Model, type Module, type NavTab, type Provider, type ResponseEvaluator, type Route, type RouteRequest,
  type RouteResponse, type Service, type TypedAction, type View, type ViewKind, type Widget,
} from "./module.js";
export { digests, signModule, verifyManifest, type Digests, type Provenance } from "./provenance.js";
export type { FromSchema, ObjectSchema, Schema } from "./schema.js";
export {
  defaultNodeId, Node,
  type FunctionEffect, type FunctionOptions, type Handler, type NodeCall, type NodeOptions, type NodeState, type WebSocketConstructor,
} from "./node.js";
