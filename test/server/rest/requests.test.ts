/** Requests over REST: examples of paths, queries and bodies, and rejected requests. */
import net from "node:net";
import test, { type ExecutionContext } from "ava";
import { SvcError } from "../../../src/errors.ts";
import { nextEvent } from "../../support/eventually.ts";
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

const denied = new SvcError("root_required", "requires root");
const unauthenticated = new SvcError("unauthenticated", "no valid token");

for (const protocol of ["HTTP/1.1", "h2c"] as const satisfies Protocol[]) {
  test(`${protocol}: a rejected caller receives the reason`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.reject = () => {
      throw unauthenticated;
    };
    const response = await server.send({ method: "GET", path: "/v1/kinds" });
    t.is(response.status, 401);
    t.is(response.headers["www-authenticate"], 'Bearer realm="svc"');
    t.deepEqual(JSON.parse(response.body.toString()), {
      error: "no valid token",
      code: "unauthenticated",
      reason: "unauthenticated",
    });
    t.deepEqual(server.pipeline.gates, ["GetKinds"]);
  });

  test(`${protocol}: a path that is not canonical is rejected before the access check`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    t.is((await server.send({ method: "GET", path: "/v1/things/../kinds" })).status, 400);
    t.deepEqual(server.pipeline.gates, []);
  });

  test(`${protocol}: access is checked before the body, its type and its size`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes, { maxBodyBytes: 10 });
    server.pipeline.reject = () => {
      throw denied;
    };
    const headers = { "content-type": "text/plain" };
    for (const body of ["{", "x".repeat(1000)]) {
      const response = await server.send({ method: "POST", path: "/v1/kinds", headers, body });
      t.is(response.status, 403);
      t.is((JSON.parse(response.body.toString()) as { reason: string }).reason, "root_required");
    }
    t.is(server.pipeline.method, undefined);
  });

  test(`${protocol}: a rejected upload gets its response before its body has arrived`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.reject = () => {
      throw denied;
    };
    t.is(
      (await server.send({ method: "PUT", path: "/v1/files/a", body: Buffer.alloc(400_000) })).status,
      403,
    );
    server.pipeline.reject = undefined;
    t.is((await server.send({ method: "GET", path: "/v1/kinds" })).status, 200);
  });

  test(`${protocol}: the payload of an error is in the property of its reason`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    const bodyOf = async (error: SvcError): Promise<[number, unknown]> => {
      server.pipeline.respond = () => {
        throw error;
      };
      const response = await server.send({ method: "GET", path: "/v1/kinds" });
      return [response.status, JSON.parse(response.body.toString())];
    };
    t.deepEqual(await bodyOf(new SvcError("token_denied", "an access token cannot do this")), [
      403,
      {
        error: "an access token cannot do this",
        code: "permission_denied",
        reason: "token_denied",
        token_denied: {},
      },
    ]);
    const licenses = [{ name: "LICENSE", text: "…", sha256: "00" }];
    t.deepEqual(await bodyOf(new SvcError("license_required", "acknowledge it", { payload: { licenses } })), [
      409,
      {
        error: "acknowledge it",
        code: "failed_precondition",
        reason: "license_required",
        license_required: { licenses, permissions: [] },
      },
    ]);
    const payload = { exitCode: 1, signal: "", lastLines: ["boom"] };
    t.deepEqual(await bodyOf(new SvcError("start_failed", "it ended at once", { payload })), [
      409,
      {
        error: "it ended at once",
        code: "failed_precondition",
        reason: "start_failed",
        start_failed: { exit_code: 1, signal: "", last_lines: ["boom"] },
      },
    ]);
  });

  const statuses = [
    ["unsupported_media_type", "invalid_argument", 415],
    ["package_invalid", "invalid_argument", 400],
    ["range_not_satisfiable", "out_of_range", 416],
    ["unauthenticated", "unauthenticated", 401],
    ["denied", "permission_denied", 403],
    ["already_exists", "already_exists", 409],
    ["not_possible", "failed_precondition", 409],
    ["changed", "failed_precondition", 412],
    ["conflict", "aborted", 409],
    ["too_many", "resource_exhausted", 429],
    ["body_too_large", "resource_exhausted", 413],
    ["canceled", "canceled", 499],
    ["archive_damaged", "data_loss", 500],
    ["method_not_allowed", "unimplemented", 405],
    ["not_implemented", "unimplemented", 501],
    ["unavailable", "unavailable", 503],
    ["deadline_exceeded", "deadline_exceeded", 504],
  ] as const;
  for (const [reason, code, status] of statuses) {
    test(`${protocol}: ${reason} is status ${status}`, async (t) => {
      await using server = await startRestServer(protocol, contract.routes);
      server.pipeline.respond = () => {
        throw new SvcError(reason, "no");
      };
      const response = await server.send({ method: "GET", path: "/v1/kinds" });
      t.is(response.status, status);
      t.deepEqual(JSON.parse(response.body.toString()), { error: "no", code, reason });
    });
  }

  test(`${protocol}: an unexpected error is logged and not shown to the client`, async (t) => {
    await using server = await startRestServer(protocol, contract.routes);
    server.pipeline.respond = () => {
      throw new TypeError("cannot read /var/lib/secret");
    };
    const response = await server.send({ method: "GET", path: "/v1/kinds" });
    t.is(response.status, 500);
    t.deepEqual(JSON.parse(response.body.toString()), {
      error: "internal error; the daemon's log has the cause under request r-1",
      code: "internal",
      reason: "internal",
      internal: { request_id: "r-1" },
    });
    t.true(server.internalErrors[0] instanceof TypeError);
    t.is((await server.send({ method: "GET", path: "/v1/things/a" })).status, 500);
  });
}

test("HTTP/1.1: a chunked body that exceeds the limit is rejected", async (t) => {
  await using server = await startRestServer("HTTP/1.1", contract.routes);
  const response = await exchange(server.port, [
    "POST /v1/kinds HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ntransfer-encoding: chunked\r\n\r\n",
    ...Array.from({ length: 40 }, () => `8000\r\n${" ".repeat(0x8000)}\r\n`),
  ]);
  t.regex(response, /^HTTP\/1\.1 413 /);
});

test("HTTP/1.1: a body that does not arrive times out", async (t) => {
  await using server = await startRestServer("HTTP/1.1", contract.routes, { bodyTimeoutMs: 100 });
  const response = await exchange(server.port, [
    "POST /v1/kinds HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n{",
  ]);
  t.regex(response, /^HTTP\/1\.1 504 /);
  t.regex(response, /"deadline_exceeded"/);
});

test("HTTP/1.1: a chunked body without chunks counts as no body", async (t) => {
  await using server = await startRestServer("HTTP/1.1", contract.routes);
  const head = "host: x\r\nconnection: close\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n";
  t.regex(await exchange(server.port, [`POST /v1/kinds HTTP/1.1\r\n${head}`]), /^HTTP\/1\.1 200 /);
});

/** Sends text over a TCP socket and reads until the server closes it. */
async function exchange(port: number, parts: readonly string[]): Promise<string> {
  const socket = net.connect(port, "127.0.0.1");
  const chunks: Buffer[] = [];
  socket.on("data", (chunk: Buffer) => chunks.push(chunk)).on("error", () => undefined);
  for (const part of parts) socket.write(part);
  await nextEvent(socket, "close");
  return Buffer.concat(chunks).toString();
}
