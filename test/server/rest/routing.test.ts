/** The routes of the contract: templates, and the route of a path. */
import net from "node:net";
import test, { type ExecutionContext } from "ava";
import fc from "fast-check";
import { SvcError } from "../../../src/errors.ts";
import { canonicalPath } from "../../../src/server/rest/path.ts";
import { type Route, type RouteMatch, Router } from "../../../src/server/rest/router.ts";
import { TemplateError, parseTemplate } from "../../../src/server/rest/template.ts";
import type { CanonicalPath } from "../../../src/server/rpc/http-request.ts";
import { nextEvent } from "../../support/eventually.ts";
import { loadTestContract } from "./support/contract.ts";
import { type HttpRequest, type Protocol, type RestServer, startRestServer } from "./support/rest-server.ts";
import { bodies, responses } from "./vectors/bodies.ts";
import { decoding, matching, variables } from "./vectors/matching.ts";
import { query } from "./vectors/query.ts";
import type { Vector } from "./vectors/vector.ts";

const contract = await loadTestContract();
const anyMethod = (contract.routes[0] as Route).method;

function route(httpMethod: string, source: string): Route {
  return { httpMethod, template: parseTemplate(source), method: anyMethod, body: "", responseBody: "" };
}

/** Whether a template matches a path. Written from the grammar, independently of the router. */
function matches({ template }: Route, segments: readonly string[], verb: string): boolean {
  if (template.verb !== verb || segments.includes("")) return false;
  const rest = template.segments.at(-1) === "**";
  const fixed = rest ? template.segments.slice(0, -1) : template.segments;
  if (rest ? segments.length < fixed.length : segments.length !== fixed.length) return false;
  return fixed.every((segment, n) => segment === "*" || segment === segments[n]);
}

/** Finds the route by trying all of them. If several match, the first differing segment decides: literal, then `*`, then `**`. */
function oracle(routes: readonly Route[], httpMethod: string, path: string): string {
  const candidates: [segments: string[], verb: string][] = [];
  const segments = path.slice(1).split("/");
  const last = segments.at(-1) ?? "";
  const colon = last.lastIndexOf(":");
  if (colon >= 0) candidates.push([[...segments.slice(0, -1), last.slice(0, colon)], last.slice(colon + 1)]);
  candidates.push([segments, ""]);

  const allow = new Set<string>();
  for (const [candidate, verb] of candidates) {
    if (verb === "" && candidate !== segments) continue;
    const matching = routes.filter((each) => matches(each, candidate, verb)).sort(bySpecificity);
    const found =
      matching.find((each) => each.httpMethod === httpMethod) ??
      (httpMethod === "HEAD" ? matching.find((each) => each.httpMethod === "GET") : undefined);
    if (found !== undefined) return `${found.httpMethod} ${found.template.source}`;
    for (const each of matching) allow.add(each.httpMethod);
  }
  if (allow.has("GET")) allow.add("HEAD");
  return allow.size === 0 ? "404" : `405 ${[...allow].sort().join()}`;
}

function bySpecificity(a: Route, b: Route): number {
  const rank = (segment: string | undefined): number =>
    segment === undefined ? 0 : segment === "**" ? 3 : segment === "*" ? 2 : 1;
  const length = Math.max(a.template.segments.length, b.template.segments.length);
  for (let n = 0; n < length; n++) {
    const difference = rank(a.template.segments[n]) - rank(b.template.segments[n]);
    if (difference !== 0) return difference;
  }
  return 0;
}

function show(match: RouteMatch): string {
  if (match.kind === "route") return `${match.route.httpMethod} ${match.route.template.source}`;
  return match.kind === "not_found" ? "404" : `405 ${match.allow.join()}`;
}

const word = fc.constantFrom("a", "b", "c");
const template = fc
  .tuple(
    fc.array(fc.oneof({ weight: 2, arbitrary: word }, fc.constant("*")), { minLength: 1, maxLength: 4 }),
    fc.constantFrom("", "", "", "/**"),
    fc.constantFrom("", "", "", ":go", ":stop"),
  )
  .map(([segments, tail, verb]) => `/${segments.join("/")}${tail}${verb}`);
const routeTable = fc
  .uniqueArray(fc.tuple(fc.constantFrom("GET", "POST", "PUT"), template), {
    selector: ([httpMethod, source]) => `${httpMethod} ${source}`,
    minLength: 1,
    maxLength: 25,
  })
  .map((entries) => entries.map(([httpMethod, source]) => route(httpMethod, source)));
const path = fc
  .tuple(
    fc.array(fc.constantFrom("a", "b", "c", "d", "a:go", ""), { minLength: 1, maxLength: 6 }),
    fc.constantFrom("", "", ":go", ":stop", ":other", ":"),
  )
  .map(([segments, verb]) => `/${segments.join("/")}${verb}`);

test("the router finds the same route as a search through all routes", (t) => {
  fc.assert(
    fc.property(
      routeTable,
      fc.constantFrom("GET", "POST", "PUT", "HEAD", "PATCH"),
      fc.array(path),
      (routes, httpMethod, paths) => {
        const router = new Router(routes);
        for (const each of paths)
          t.is(
            show(router.match(httpMethod, each as CanonicalPath)),
            oracle(routes, httpMethod, each),
            `${httpMethod} ${each}`,
          );
      },
    ),
    { numRuns: 2000 },
  );
});

test("the order of the routes does not matter", (t) => {
  fc.assert(
    fc.property(
      routeTable.chain((routes) =>
        fc.tuple(fc.constant(routes), fc.shuffledSubarray(routes, { minLength: routes.length })),
      ),
      path,
      ([routes, shuffled], each) => {
        const raw = each as CanonicalPath;
        t.is(show(new Router(routes).match("GET", raw)), show(new Router(shuffled).match("GET", raw)));
      },
    ),
  );
});

test("a path of thousands of segments is rejected without backtracking through them", (t) => {
  const router = new Router([route("GET", "/*/*/*/a"), route("GET", "/a/**"), route("GET", "/*/b/**:go")]);
  const kindOf = (start: string) =>
    router.match("GET", canonicalPath(`${start}${"/x".repeat(20_000)}`, { escapedSlash: "reject" })).kind;
  t.is(kindOf("/b"), "not_found");
  t.is(kindOf("/a"), "route");
});

const accepted: [template: string, segments: string[], verb: string, variables: string[]][] = [
  ["/v1", ["v1"], "", []],
  ["/v1/a/b", ["v1", "a", "b"], "", []],
  ["/v1/{id}", ["v1", "*"], "", ["id 1-2"]],
  ["/v1/{a.b.c}", ["v1", "*"], "", ["a.b.c 1-2"]],
  ["/v1/{name=a/*/b/*}/c", ["v1", "a", "*", "b", "*", "c"], "", ["name 1-5 multi"]],
  ["/v1/{name=*}", ["v1", "*"], "", ["name 1-2"]],
  ["/v1/{name=**}", ["v1", "**"], "", ["name 1-2 rest multi"]],
  ["/v1/{name=a/**}:go", ["v1", "a", "**"], "go", ["name 1-3 rest multi"]],
  ["/v1/*/{x}/**", ["v1", "*", "*", "**"], "", ["x 2-3"]],
  ["/v1/a:go", ["v1", "a"], "go", []],
  ["/v1/caf%C3%A9", ["v1", "café"], "", []],
  ["/v1/a%3Ab", ["v1", "a:b"], "", []],
  ["/v1/.well-known", ["v1", ".well-known"], "", []],
];

for (const [source, segments, verb, variables] of accepted) {
  test(`the parser accepts ${source}`, (t) => {
    const template = parseTemplate(source);
    t.deepEqual([template.segments, template.verb], [segments, verb]);
    const shown = template.variables.map(({ fieldPath, start, end, rest, multi }) =>
      [`${fieldPath.join(".")} ${start}-${end}`, ...(rest ? ["rest"] : []), ...(multi ? ["multi"] : [])].join(
        " ",
      ),
    );
    t.deepEqual(shown, variables);
  });
}

const rejected: [template: string, problem: RegExp][] = [
  ["", /character 1: the path must start with a slash/],
  ["v1", /must start with a slash/],
  ["/", /segment is empty/],
  ["/v1/", /character 5: a segment is empty/],
  ["//v1", /segment is empty/],
  ["/v1//a", /segment is empty/],
  ["/v1?x=1", /"\?" is not allowed/],
  ["/v1/a b", /" " is not allowed/],
  ["/v1/{}", /field name is missing/],
  ["/v1/{=a}", /field name is missing/],
  ["/v1/{1a}", /field name is missing/],
  ["/v1/{a.}", /field name is missing/],
  ["/v1/{a", /not closed/],
  ["/v1/{a=b", /not closed/],
  ["/v1/a}", /"}" is not allowed/],
  ["/v1/{a=}", /segment is empty/],
  ["/v1/{a={b}}", /cannot contain another/],
  ["/v1/{a}/{a}", /"a" appears twice/],
  ["/v1/{a}{b}", /is not allowed/],
  ["/v1/x{a}", /is not allowed/],
  ["/v1/**/a", /nothing may follow/],
  ["/v1/{a=**}/b", /nothing may follow/],
  ["/v1/{a=**/b}", /nothing may follow/],
  ["/v1/***", /is not allowed/],
  ["/v1/a*", /is not allowed/],
  ["/v1/a:", /verb after the colon is empty/],
  ["/v1/:go", /segment is empty/],
  ["/v1/a:go/b", /is not allowed/],
  ["/v1/a:go:stop", /is not allowed/],
  ["/v1/%zz", /not allowed/],
  ["/v1/%2", /not allowed/],
  ["/v1/%ff", /not percent-encoded UTF-8/],
  ["/v1/a%2Fb", /cannot be part/],
  ["/v1/a%00", /cannot be part/],
  ["/v1/..", /cannot be part/],
  ["/v1/%2E", /cannot be part/],
  ["/v1/%2A", /wildcard/],
  ["/v1/a#b", /is not allowed/],
];

for (const [source, problem] of rejected) {
  test(`the parser rejects "${source}"`, (t) => {
    t.regex(t.throws(() => parseTemplate(source), { instanceOf: TemplateError }).message, problem);
  });
}

const literal = fc.stringMatching(/^[a-z0-9_-]{1,6}$/);
const segment = fc.oneof(
  { weight: 3, arbitrary: literal.map((text) => ({ text, segments: [text] })) },
  fc.constant({ text: "*", segments: ["*"] }),
  fc.array(fc.oneof(literal, fc.constant("*")), { minLength: 1, maxLength: 3 }).map((inner) => ({ inner })),
);

test("a template built from the grammar parses to its parts", (t) => {
  fc.assert(
    fc.property(
      fc.array(segment, { minLength: 1, maxLength: 6 }),
      fc.constantFrom("", "**", "{rest=**}"),
      fc.option(literal, { nil: "" }),
      (parts, tail, verb) => {
        const texts = parts.map((part, n) =>
          "inner" in part ? `{v${n}=${part.inner.join("/")}}` : part.text,
        );
        const segments = parts.flatMap((part) => ("inner" in part ? part.inner : part.segments));
        const path = [...texts, ...(tail === "" ? [] : [tail])].join("/");
        const template = parseTemplate(`/${path}${verb === "" ? "" : `:${verb}`}`);
        t.deepEqual(template.segments, [...segments, ...(tail === "" ? [] : ["**"])]);
        t.is(template.verb, verb);
        for (const { fieldPath, start, end } of template.variables) {
          const part = parts[Number(fieldPath[0]?.slice(1))];
          if (part !== undefined && "inner" in part)
            t.deepEqual(template.segments.slice(start, end), part.inner);
        }
      },
    ),
  );
});

test("any text is either parsed or a TemplateError", (t) => {
  const text = fc.stringMatching(/^\/?[a-z/{}*=:.%?2F ]{0,20}$/);
  fc.assert(
    fc.property(fc.oneof(text, fc.string()), (source) => {
      try {
        const template = parseTemplate(source);
        return template.source === source && template.segments.length > 0;
      } catch (error) {
        return error instanceof TemplateError;
      }
    }),
    { numRuns: 5000 },
  );
  t.pass();
});

// Requests over REST: examples of paths, queries and bodies, and rejected requests.

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

  test(`${protocol}: the property that is named after an error's reason contains its payload`, async (t) => {
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
