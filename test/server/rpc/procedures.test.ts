/**
 * Unary calls of gRPC and Connect on the fast path: which it accepts, which it passes on unchanged, and equal
 * results on both paths. Large errors in gRPC's trailers: always a status, and as much of the payload as fits.
 */
import { once } from "node:events";
import { gunzipSync, gzipSync } from "node:zlib";
import { create, fromBinary, toBinary } from "@bufbuild/protobuf";
import { Code, ConnectError } from "@connectrpc/connect";
import test from "ava";
import { AppSchema, StartAppRequestSchema } from "../../../gen/svc/v1/app_pb.ts";
import { SvcError } from "../../../src/errors.ts";
import { svcErrorOf, connectErrorOf } from "../../../src/server/rpc/connect/connect-errors.ts";
import { eventually } from "../../support/eventually.ts";
import {
  answerOf,
  framed,
  root,
  startProcedureServer,
  unframed,
  ways,
  type Way,
} from "./support/procedure-server.ts";
import { setTrailerStatus, findTrailerError } from "@connectrpc/connect/protocol-grpc";
import fc from "fast-check";
import { ErrorDetailSchema } from "../../../gen/svc/v1/error_pb.ts";
import { fitTrailers, maxStatusBytes } from "../../../src/server/rpc/grpc-trailers.ts";

const method = "svc.v1.AppService/StartApp";
const path = `/${method}`;
const web = toBinary(StartAppRequestSchema, create(StartAppRequestSchema, { id: "web" }));
const echo = { app: { startApp: ({ id }: { id: string }) => ({ id }) } };

const protocolOf = (way: Way): string => (way === "gRPC" ? "grpc" : "connect");
/** A header with different names in the two protocols. */
const named = (way: Way, grpc: string, connect: string, value: string): Record<string, string> => ({
  [way === "gRPC" ? grpc : connect]: value,
});
const encoding = (way: Way, value: string) => named(way, "grpc-encoding", "content-encoding", value);
const accepting = (way: Way, value: string) => named(way, "grpc-accept-encoding", "accept-encoding", value);
const timeout = (way: Way, ms: number | string) =>
  named(way, "grpc-timeout", "connect-timeout-ms", way === "gRPC" ? `${ms}m` : String(ms));

for (const way of ways) {
  test(`${way}: a plain call is accepted and recorded`, async (t) => {
    await using server = await startProcedureServer({ handlers: echo });
    const forms = [{}, encoding(way, "identity"), timeout(way, 5_000), { "x-own": "1" }];
    if (way === "gRPC") forms.push({ "content-type": "application/grpc+proto" });
    for (const headers of forms) {
      const answer = await server.post(way, path, framed(way, web), headers);
      t.false(answer.isHandedOver, JSON.stringify(headers));
      t.is(answer.error, undefined);
      t.is(answer.headers["content-type"], way === "gRPC" ? "application/grpc+proto" : "application/proto");
      t.is(fromBinary(AppSchema, unframed(way, answer.body)).id, "web");
    }
    t.deepEqual(
      server.ended,
      forms.map(() => `${method} ${protocolOf(way)} ok`),
    );
    t.like(server.audits[0], { method, target: "web", result: "ok", requestId: "r1", user: root });
  });

  const large = framed(way, Buffer.alloc(100_000, "x"));
  const others: [what: string, headers: Record<string, string>, body?: Buffer | undefined, path?: string][] =
    [
      ["a packed request", encoding(way, "gzip"), gzipSync(web)],
      ["a packing that nobody knows", encoding(way, "lzma")],
      ["a type with parameters", { "content-type": "application/proto; charset=utf-8" }],
      ["gRPC-Web", { "content-type": "application/grpc-web+proto" }],
      ["a stream of Connect's", { "content-type": "application/connect+proto" }],
      ["no deadline that can be read", timeout(way, "soon")],
      ["a deadline that is over", timeout(way, 0)],
      ["a deadline that is too long", timeout(way, 60_001)],
      ["a query", {}, undefined, `${path}?x=1`],
      ["a method that is not there", {}, undefined, "/svc.v1.AppService/Nope"],
      ["a method that streams", {}, undefined, "/svc.v1.AppService/StreamAppLogs"],
      ["bytes that are not a message", {}, framed(way, Buffer.from("{"))],
      ["more than a plain message has", {}, large],
    ];
  if (way === "gRPC") {
    others.push(
      ["no message", {}, Buffer.alloc(0)],
      ["two messages", {}, Buffer.concat([framed(way, web), framed(way, web)])],
      ["less than its length says", {}, framed(way, web).subarray(0, -1)],
      ["more than its length says", {}, Buffer.concat([Buffer.alloc(5), web])],
      ["half of a length", {}, framed(way, web).subarray(0, 3)],
      ["a flag", {}, framed(way, web, 1)],
      ["JSON", { "content-type": "application/grpc+json" }],
    );
  }
  if (way !== "Connect over HTTP/1.1") others.push(["another HTTP method", { ":method": "PUT" }]);
  for (const [what, headers, body = framed(way, web), target = path] of others) {
    test(`${way}: ${what} is passed on unchanged`, async (t) => {
      await using server = await startProcedureServer({ handlers: echo });
      const answer = await server.post(way, target, body, headers);
      t.true(answer.isHandedOver);
      t.true(answer.body.equals(body));
      t.deepEqual(server.ended, []);
    });
  }

  test(`${way}: a message above the limit is passed on, one at the limit is not`, async (t) => {
    const maxMessageBytes = framed(way, web).length;
    await using server = await startProcedureServer({ handlers: echo, maxMessageBytes });
    t.false((await server.post(way, path, framed(way, web))).isHandedOver);
    const longer = toBinary(StartAppRequestSchema, create(StartAppRequestSchema, { id: "webs" }));
    t.true((await server.post(way, path, framed(way, longer))).isHandedOver);
  });

  test(`${way}: a body in several chunks is one message`, async (t) => {
    await using server = await startProcedureServer({ handlers: echo });
    const sent = server.begin(way, path);
    const answered = answerOf(sent, way);
    for (const byte of framed(way, web)) {
      sent.write(Buffer.of(byte));
      await new Promise((resolve) => setImmediate(resolve));
    }
    sent.end();
    t.is(fromBinary(AppSchema, unframed(way, (await answered).body)).id, "web");
  });

  test(`${way}: an unauthorized caller is rejected before a byte of the body is read`, async (t) => {
    const user = { ...root, uid: 1000, root: false, ownerUid: 1000 };
    await using server = await startProcedureServer({ user });
    const signal = "svc.v1.ProcessService/SignalProcess";
    const sent = server.begin(way, `/${signal}`);
    sent.on("error", () => undefined);
    sent.write(framed(way, web).subarray(0, 1));
    const { error } = await answerOf(sent, way);
    t.is(error?.code, Code.PermissionDenied);
    t.is(error && svcErrorOf(error).reason, "root_required");
    t.deepEqual(server.ended, [`${signal} ${protocolOf(way)} permission_denied`]);
    t.like(server.audits, { length: 1, 0: { method: signal, result: "permission_denied" } });
    sent.destroy();
  });

  test(`${way}: rule violations and errors of the handler keep code, reason and payload`, async (t) => {
    const startApp = (): never => {
      throw new SvcError("owned_by_app", "no", { payload: { appId: "web" } });
    };
    await using server = await startProcedureServer({ handlers: { app: { startApp } } });
    const owned = await server.post(way, path, framed(way, web));
    t.like(owned.error && svcErrorOf(owned.error), {
      code: "failed_precondition",
      reason: "owned_by_app",
      message: "no",
      payload: { appId: "web" },
    });
    const broken = await server.post(way, path, framed(way, new Uint8Array()));
    t.like(broken.error && svcErrorOf(broken.error), {
      code: "invalid_argument",
      payload: { violations: [{ field: "id", description: "is required" }] },
    });
    t.deepEqual(server.ended, [
      `${method} ${protocolOf(way)} failed_precondition`,
      `${method} ${protocolOf(way)} invalid_argument`,
    ]);
  });

  test(`${way}: a defect of the handler reveals no details`, async (t) => {
    const startApp = (): never => {
      throw new Error("secret /var/lib/svc/path");
    };
    await using server = await startProcedureServer({ handlers: { app: { startApp } } });
    const { error } = await server.post(way, path, framed(way, web));
    t.is(error?.code, Code.Internal);
    t.notRegex(String(error), /secret|var/);
  });

  test(`${way}: a response that cannot be serialized is reported as a defect`, async (t) => {
    await using server = await startProcedureServer({
      handlers: { app: { startApp: () => ({ restarts: -1 }) } },
    });
    const { error } = await server.post(way, path, framed(way, web));
    t.is(error?.code, Code.Internal);
    t.regex(String(server.failures), /restarts/);
  });

  for (const fails of [false, true]) {
    test(`${way}: a handler reads headers and sets its own${fails ? ", also when it fails" : ""}`, async (t) => {
      await using server = await startProcedureServer({
        handlers: {
          app: {
            startApp({ id }, { requestHeader, responseHeader, responseTrailer, url, requestMethod }) {
              const seen = [requestHeader.get("x-own"), new URL(url).pathname, requestMethod];
              responseHeader.append("x-seen", seen.join(" "));
              responseHeader.append("x-many", "a");
              responseHeader.append("x-many", "b");
              responseTrailer.set("x-end", "over");
              if (fails) throw new SvcError("app_running", "it runs");
              return { id };
            },
          },
        },
      });
      const { headers, error } = await server.post(way, path, framed(way, web), { "x-own": "1" });
      t.is(error?.code, fails ? Code.FailedPrecondition : undefined);
      t.is(headers["x-seen"], `1 ${path} POST`);
      t.is(headers["x-many"], "a, b");
      t.is(headers[way === "gRPC" ? "x-end" : "trailer-x-end"], "over");
    });
  }

  test(`${way}: the deadline ends a call, and the handler receives the remaining time`, async (t) => {
    let left: number | undefined;
    await using server = await startProcedureServer({
      handlers: {
        app: {
          startApp(_request, context) {
            left = context.timeoutMs();
            return new Promise(() => undefined);
          },
        },
      },
    });
    const { error } = await server.post(way, path, framed(way, web), timeout(way, 300));
    t.like(error && svcErrorOf(error), { code: "deadline_exceeded", reason: "deadline_exceeded" });
    t.true(left !== undefined && left > 0 && left <= 300, String(left));
  });

  test(`${way}: the deadline runs while the body arrives`, async (t) => {
    const lefts: (number | undefined)[] = [];
    const startApp = ({ id }: { id: string }, context: { timeoutMs: () => number | undefined }) => {
      lefts.push(context.timeoutMs());
      return { id };
    };
    await using server = await startProcedureServer({ handlers: { app: { startApp } } });
    const sent = server.begin(way, path, timeout(way, 60_000));
    const answered = answerOf(sent, way);
    const arrived = server.untilArrived();
    sent.write(framed(way, web).subarray(0, 1));
    await arrived;
    await new Promise((resolve) => setTimeout(resolve, 100));
    sent.end(framed(way, web).subarray(1));
    await answered;
    t.true(Number(lefts[0]) < 59_950, String(lefts));
  });

  test(`${way}: a call that is passed on has the rest of its deadline`, async (t) => {
    await using server = await startProcedureServer({ handlers: echo });
    for (const givenMs of [59_900, 10_000]) {
      const sent = server.begin(way, path, timeout(way, givenMs));
      sent.on("error", () => undefined);
      const answered = answerOf(sent, way);
      const arrived = server.untilArrived();
      sent.write(large.subarray(0, 1));
      await arrived;
      await new Promise((resolve) => setTimeout(resolve, 200));
      sent.end(large.subarray(1));
      const { deadline } = await answered;
      const [, leftMs] = /^(\d+)m?$/.exec(deadline ?? "") ?? [];
      t.true(Number(leftMs) > 0 && Number(leftMs) <= givenMs - 50, deadline);
    }
  });

  test(`${way}: a body that never ends fails at the deadline`, async (t) => {
    t.timeout(10_000);
    await using server = await startProcedureServer({ handlers: echo });
    const sent = server.begin(way, path, timeout(way, 50));
    sent.on("error", () => undefined);
    sent.write(framed(way, web).subarray(0, 1));
    const { error, isHandedOver } = await answerOf(sent, way);
    t.false(isHandedOver);
    t.like(error && svcErrorOf(error), { code: "deadline_exceeded", reason: "deadline_exceeded" });
    t.deepEqual(server.ended, [`${method} ${protocolOf(way)} deadline_exceeded`]);
    t.like(server.audits, { length: 1, 0: { method, result: "deadline_exceeded" } });
    sent.destroy();
  });

  test(`${way}: a call whose token is revoked while it arrives has no effect`, async (t) => {
    const token = new AbortController();
    const started: string[] = [];
    const startApp = ({ id }: { id: string }) => ({ id: started[started.push(id) - 1] ?? "" });
    const user = { ...root, ended: token.signal };
    await using server = await startProcedureServer({ handlers: { app: { startApp } }, user });
    const sent = server.begin(way, path);
    const answered = answerOf(sent, way);
    sent.write(framed(way, web).subarray(0, 1));
    await new Promise((resolve) => setTimeout(resolve, 50));
    token.abort(new SvcError("unauthenticated", "the token was revoked"));
    sent.end(framed(way, web).subarray(1));
    t.is((await answered).error?.code, Code.Unauthenticated);
    t.deepEqual(started, []);
    t.deepEqual(server.ended, [`${method} ${protocolOf(way)} unauthenticated`]);
    t.like(server.audits, { length: 1, 0: { method, result: "unauthenticated" } });
  });

  test(`${way}: a client that disconnects ends its call`, async (t) => {
    const { promise: begun, resolve: begin } = Promise.withResolvers<AbortSignal>();
    await using server = await startProcedureServer({
      handlers: {
        app: {
          startApp(_request, { signal }) {
            begin(signal);
            return new Promise(() => undefined);
          },
        },
      },
    });
    const sent = server.begin(way, path);
    sent.on("error", () => undefined);
    sent.end(framed(way, web));
    const signal = await begun;
    sent.destroy();
    if (!signal.aborted) await once(signal, "abort");
    t.like(signal.reason, { code: "canceled" });
  });

  test(`${way}: a client that disconnects within its message is recorded`, async (t) => {
    await using server = await startProcedureServer({ handlers: echo });
    const sent = server.begin(way, path);
    sent.on("error", () => undefined);
    sent.write(framed(way, web).subarray(0, 1));
    await new Promise((resolve) => setTimeout(resolve, 50));
    sent.destroy(new Error("gone"));
    await eventually(() => {
      if (server.ended.length === 0) throw new Error("not yet");
    });
    t.deepEqual(server.ended, [`${method} ${protocolOf(way)} canceled`]);
    t.like(server.audits, { length: 1, 0: { result: "canceled" } });
  });

  test(`${way}: a long response is compressed for clients that accept it`, async (t) => {
    const startApp = ({ id }: { id: string }) => ({ id, name: "long ".repeat(1000) });
    await using server = await startProcedureServer({ handlers: { app: { startApp } } });
    const header = way === "gRPC" ? "grpc-encoding" : "content-encoding";
    for (const accepted of ["gzip", "br, gzip"]) {
      const { headers, body } = await server.post(way, path, framed(way, web), accepting(way, accepted));
      t.is(headers[header], "gzip");
      if (way === "gRPC") t.is(body[0], 1);
      t.is(fromBinary(AppSchema, gunzipSync(unframed(way, body))).id, "web");
    }
    for (const accepted of ["identity", "gzipped"]) {
      const { headers, body } = await server.post(way, path, framed(way, web), accepting(way, accepted));
      t.is(headers[header], undefined);
      if (way === "gRPC") t.is(body[0], 0);
      t.is(fromBinary(AppSchema, unframed(way, body)).id, "web");
    }
  });

  test(`${way}: a short response is not compressed`, async (t) => {
    await using server = await startProcedureServer({ handlers: echo });
    const { headers, body } = await server.post(way, path, framed(way, web), accepting(way, "gzip"));
    t.is(headers["content-encoding"] ?? headers["grpc-encoding"], undefined);
    t.is(fromBinary(AppSchema, unframed(way, body)).id, "web");
  });
}

const json = { "content-type": "application/json" };

for (const way of ["Connect over HTTP/1.1", "Connect over HTTP/2"] as const) {
  test(`${way}: JSON is accepted, and its response and errors are JSON`, async (t) => {
    await using server = await startProcedureServer({ handlers: echo });
    const answer = await server.post(way, path, Buffer.from('{"id":"wéb","unknown":[1]}'), json);
    t.false(answer.isHandedOver);
    t.is(answer.headers["content-type"], "application/json");
    t.deepEqual(JSON.parse(answer.body.toString()), { id: "wéb" });
    const broken = await server.post(way, path, Buffer.from("{}"), json);
    t.like(broken.error && svcErrorOf(broken.error), {
      reason: "invalid_request",
      payload: { violations: [{ field: "id", description: "is required" }] },
    });
    t.deepEqual(server.ended, [`${method} connect ok`, `${method} connect invalid_argument`]);
  });

  for (const body of [
    "",
    "{",
    '{"id":1}',
    '{"id":"a","id":"b"}',
    "[]",
    Buffer.from('{"id":"\xff"}', "latin1"),
  ]) {
    test(`${way}: ${JSON.stringify(String(body))} is passed on unchanged`, async (t) => {
      await using server = await startProcedureServer({ handlers: echo });
      const answer = await server.post(way, path, Buffer.from(body), json);
      t.true(answer.isHandedOver);
      t.true(answer.body.equals(Buffer.from(body)));
      t.deepEqual(server.ended, []);
    });
  }

  test(`${way}: a long JSON response is compressed for clients that accept it`, async (t) => {
    const startApp = ({ id }: { id: string }) => ({ id, name: "long ".repeat(1000) });
    await using server = await startProcedureServer({ handlers: { app: { startApp } } });
    const headers = { ...json, ...accepting(way, "gzip") };
    const answer = await server.post(way, path, Buffer.from('{"id":"web"}'), headers);
    t.is(answer.headers["content-encoding"], "gzip");
    t.like(JSON.parse(gunzipSync(answer.body).toString()), { id: "web" });
  });
}

test("gRPC over HTTP/1.1 is passed on", async (t) => {
  await using server = await startProcedureServer({ handlers: echo });
  const body = framed("gRPC", web);
  const answer = await server.post("Connect over HTTP/1.1", path, body, {
    "content-type": "application/grpc",
  });
  t.true(answer.isHandedOver);
  t.true(answer.body.equals(body));
});

// Large errors in gRPC's trailers.

const sha256 = "0123456789abcdef".repeat(4);

/** The error that a gRPC client reads, and the size of its headers in bytes. */
function sent(error: ConnectError): { error: ConnectError; bytes: number } {
  const trailers = setTrailerStatus(new Headers(), error);
  const bytes = [...trailers].reduce((sum, [name, value]) => sum + name.length + value.length + 32, 0);
  return { error: findTrailerError(trailers)!, bytes };
}

function payloadSent(error: SvcError): Record<string, unknown> {
  const told = sent(connectErrorOf(error, "grpc"));
  if (told.bytes > maxStatusBytes) throw new Error(`${told.bytes} bytes of trailers`);
  return svcErrorOf(told.error).payload as Record<string, unknown>;
}

const invalid = (count: number, description: string): SvcError =>
  new SvcError("invalid_request", "no", {
    payload: { violations: Array.from({ length: count }, (_, i) => ({ field: `jobs[${i}]`, description })) },
  });

test("an error that fits is sent unchanged", (t) => {
  const error = connectErrorOf(invalid(20, "too long"));
  t.is(fitTrailers(error), error);
  t.true(sent(error).bytes < maxStatusBytes);
});

test("protocols other than gRPC send the complete error", (t) => {
  const licenses = [{ name: "LICENSE", text: "x".repeat(65_536), sha256 }];
  const error = new SvcError("license_required", "read it", { payload: { licenses } });
  for (const protocolName of [undefined, "connect", "grpc-web"]) {
    t.like(svcErrorOf(connectErrorOf(error, protocolName)).payload, { licenses });
  }
});

test("texts are truncated to the same length; names and hashes stay complete", (t) => {
  for (const count of [1, 2, 16]) {
    const licenses = Array.from({ length: count }, (_, i) => ({
      name: `LICENSE.${i}`,
      text: `${"x".repeat(65_535)}${i}`,
      sha256,
    }));
    const payload = payloadSent(new SvcError("license_required", "read it", { payload: { licenses } }));
    const length = { 1: 4096, 2: 2048, 16: 128 }[count]!;
    t.like(payload, {
      licenses: licenses.map(({ name }) => ({ name, sha256, text: `${"x".repeat(length - 1)}…` })),
    });
  }
});

test("a character is not split", (t) => {
  const text = `${"x".repeat(4094)}${"😀".repeat(5_000)}`;
  const licenses = [{ name: "LICENSE", text, sha256 }];
  const payload = payloadSent(new SvcError("license_required", "read it", { payload: { licenses } }));
  t.like(payload, { licenses: [{ text: `${"x".repeat(4094)}…` }] });
});

test("a list that is too long is reduced to its first entries", (t) => {
  const { violations } = payloadSent(invalid(64, "d".repeat(140))) as { violations: { field: string }[] };
  t.deepEqual(
    violations.map(({ field }) => field),
    Array.from({ length: 32 }, (_, i) => `jobs[${i}]`),
  );
  const ids = Array.from({ length: 5_000 }, (_, i) => `job-${i}`);
  const error = new SvcError("job_owned", "no", { payload: { ids, managedBy: "panel" } });
  t.like(payloadSent(error), { ids: ids.slice(0, 32), managedBy: "panel" });
});

test("a long message is truncated after its beginning", (t) => {
  const error = new SvcError("not_found", `no ${"é".repeat(10_000)}`);
  const told = sent(connectErrorOf(error, "grpc"));
  t.true(told.bytes <= maxStatusBytes);
  t.is(told.error.rawMessage, `no ${"é".repeat(252)}…`);
  t.is(svcErrorOf(told.error).reason, "not_found");
});

test("an error that is not svc's keeps its code", (t) => {
  const value = { reason: "x".repeat(10_000) };
  const foreign = new ConnectError("no", Code.DataLoss, undefined, []);
  foreign.details = [{ type: ErrorDetailSchema.typeName, value: new Uint8Array(10_000) }];
  for (const error of [
    foreign,
    new ConnectError("no", Code.DataLoss, undefined, [{ desc: ErrorDetailSchema, value }]),
  ]) {
    const told = sent(fitTrailers(error));
    t.is(told.error.code, Code.DataLoss);
    t.true(told.bytes <= maxStatusBytes);
  }
});

test("any error fits into the trailers of gRPC", (t) => {
  const text = fc.oneof(
    fc.string({ unit: "grapheme", maxLength: 40 }),
    fc
      .tuple(fc.constantFrom("a", "ü", "漢", "😀"), fc.nat(70_000))
      .map(([character, n]) => character.repeat(n)),
  );
  const error = fc.record({
    message: text,
    licenses: fc.array(fc.record({ name: text, text, sha256: text }), { maxLength: 20 }),
    permissions: fc.array(text, { maxLength: 20 }),
  });
  t.notThrows(() =>
    fc.assert(
      fc.property(error, ({ message, ...payload }) => {
        const told = sent(connectErrorOf(new SvcError("license_required", message, { payload }), "grpc"));
        return (
          told.bytes <= maxStatusBytes &&
          told.error.code === Code.FailedPrecondition &&
          svcErrorOf(told.error).reason === "license_required"
        );
      }),
      { numRuns: 60 },
    ),
  );
});
