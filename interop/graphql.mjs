// A GraphQL API of the reference implementation, which validates every request against its schema:
//
//   node graphql.mjs ADDRESS
//
// GET /refused answers how many requests it found invalid, and the first of them.
import { createServer } from 'node:http';
import { buildSchema, execute, parse, validate } from 'graphql';

const schema = buildSchema(`
  "A moment, as text."
  scalar Moment
  enum Status { OPEN PAID @deprecated(reason: "it is CLOSED now") CLOSED }
  interface Node { id: ID! }
  interface Named implements Node { id: ID! name(upper: Boolean = false): String! }
  type Customer implements Named & Node { id: ID! name(upper: Boolean = false): String! orders(first: Int! = 10, after: String): Orders! }
  type Order implements Node { id: ID! status: Status! placed: Moment customer: Customer! lines: [[Line!]!]! price(currency: String!): Float }
  type Line { product: Product amount: Int! }
  type Product implements Named & Node { id: ID! name(upper: Boolean = false): String! parent: Product related: [Product!]! }
  type Orders { edges: [OrderEdge!]! pageInfo: PageInfo! }
  type OrderEdge { node: Order cursor: String! }
  type PageInfo { hasNextPage: Boolean! endCursor: String }
  union Found = Customer | Order | Product
  input Filter { status: Status = OPEN or: [Filter!] placed: Range tags: [String!] }
  input Range { from: Moment to: Moment }
  input Key @oneOf { id: ID name: String }
  input NewOrder { customer: ID! lines: [NewLine!]! note: String = "none" }
  input NewLine { product: ID! amount: Int! = 1 }
  type Query {
    order(id: ID!): Order
    orders(filter: Filter = {status: OPEN}, first: Int = 2): Orders!
    find(text: String!, in: [Status!]! = [OPEN]): [Found!]!
    node(id: ID!): Node
    product(by: Key!): Product
    matrix(rows: [[Int!]!]!): [[Int!]!]!
    now: Moment!
    type(query: String, mutation: Int): String
    broken: String!
  }
  type Mutation {
    place(order: NewOrder!): Order!
    cancel(id: ID!, reason: String = "none \\"given\\""): Boolean
  }
`);

const customer = { __typename: 'Customer', id: 'c1', name: ({ upper }) => (upper ? 'ADA' : 'Ada'), orders: () => ({ edges: [], pageInfo: { hasNextPage: false } }) };
const product = { __typename: 'Product', id: 'p1', name: 'Lamp', related: [] };
const order = (id, status = 'OPEN') => ({ __typename: 'Order', id, status, placed: '2026-01-02', customer, lines: [[{ product, amount: 3 }]] });
const root = {
  order: ({ id }) => order(id),
  orders: ({ filter, first }) => ({
    edges: Array.from({ length: first }, (_, i) => ({ node: order(`o${i}`, filter.status), cursor: `${i}` })),
    pageInfo: { hasNextPage: true, endCursor: `${first - 1}` },
  }),
  find: ({ text, in: states }) => [customer, order(text, states[0]), product],
  node: ({ id }) => ({ ...product, id }),
  product: ({ by }) => ({ ...product, id: by.id ?? by.name }),
  matrix: ({ rows }) => rows,
  now: '2026-01-02',
  type: ({ query, mutation }) => `${query} ${mutation}`,
  broken: () => { throw new Error('the lamp is broken'); },
  place: ({ order: { customer: id, lines, note } }) => ({ ...order(`${id} ${lines[0].product} ${lines[0].amount} ${note}`) }),
  cancel: ({ reason }) => reason === 'none "given"',
};

let refused = 0;
let first = '';
const [host, port] = process.argv[2].split(':');
createServer(async (request, response) => {
  const send = (status, value) => {
    response.writeHead(status, { 'content-type': 'application/json' });
    response.end(JSON.stringify(value));
  };
  if (request.method === 'GET') return send(200, { refused, first });
  let body = '';
  for await (const part of request) body += part;
  const { query, variables, operationName } = JSON.parse(body);
  let errors;
  let document;
  try {
    document = parse(query);
    errors = validate(schema, document);
  } catch (err) {
    errors = [err];
  }
  if (errors.length > 0) {
    refused++;
    first ||= `${query}: ${errors[0].message}`;
    return send(400, { errors });
  }
  const answer = await execute({ schema, document, rootValue: root, variableValues: variables, operationName });
  return send(200, answer);
}).listen(Number(port), host);
