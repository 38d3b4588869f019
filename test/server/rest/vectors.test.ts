import test, { type ExecutionContext } from "ava";
import { loadTestContract } from "./support/contract.ts";
import { startRestServer, type HttpRequest, type Protocol, type RestServer } from "./support/rest-server.ts";
import { bodies, responses } from "./vectors/bodies.ts";
import { decoding, matching, variables } from "./vectors/matching.ts";
import { query } from "./vectors/query.ts";
import type { Vector } from "./vectors/vector.ts";

const contract = await loadTestContract();
const groups = { matching, decoding, variables, query, bodies, responses };

for (const protocol of ["HTTP/1.1", "h2c"] as const satisfies Protocol[]) {
  for (const [group, vectors] of Object.entries(groups)) {
    for (const vector of vectors) {
      test(`${protocol}, ${group}: ${vector.name}: ${vector.request}`, async (t) => {
        await using server = await startRestServer(protocol, contract.routes);
        await check(t, server, vector);
      });
    }
  }
}

async function check(t: ExecutionContext, server: RestServer, vector: Vector): Promise<void> {
  const response = await server.send(httpRequest(vector));
  const text = response.body.toString();
  t.is(response.status, vector.status ?? (vector.violations === undefined ? 200 : 400), text);
  if (vector.calls === undefined) {
    if (vector.response === undefined && response.status !== 200)
      t.is(server.pipeline.method, undefined, "no handler is called");
  } else {
    t.deepEqual([server.pipeline.method, server.pipeline.message], [...vector.calls]);
  }
  for (const [name, value] of Object.entries(vector.responseHeaders ?? {}))
    t.is(response.headers[name], value);
  if (vector.response !== undefined) t.deepEqual(JSON.parse(text), vector.response);
  if (vector.request.startsWith("HEAD")) t.is(text, "");
  if (vector.reason !== undefined) t.is((JSON.parse(text) as { reason: string }).reason, vector.reason);
  if (vector.violations !== undefined) checkViolations(t, text, vector.violations);
  t.deepEqual(server.internalErrors, []);
}

function checkViolations(
  t: ExecutionContext,
  text: string,
  expected: Readonly<Record<string, RegExp>>,
): void {
  const body = JSON.parse(text) as {
    code: string;
    reason: string;
    invalid_request: { violations: { field: string; description: string }[] };
  };
  t.is(body.code, "invalid_argument");
  t.is(body.reason, "invalid_request");
  const { violations } = body.invalid_request;
  t.deepEqual(violations.map((violation) => violation.field).sort(), Object.keys(expected).sort());
  for (const { field, description } of violations) t.regex(description, expected[field] ?? /$^/);
}

function httpRequest({ request, headers, body }: Vector): HttpRequest {
  const space = request.indexOf(" ");
  const target = { method: request.slice(0, space), path: request.slice(space + 1) };
  if (body === undefined || body instanceof Uint8Array)
    return { ...target, headers: withoutEmpty(headers), body };
  return {
    ...target,
    headers: { "content-type": "application/json", ...headers },
    body: JSON.stringify(body),
  };
}

function withoutEmpty(headers: Readonly<Record<string, string>> = {}): Record<string, string> {
  return Object.fromEntries(Object.entries(headers).filter(([, value]) => value !== ""));
}
