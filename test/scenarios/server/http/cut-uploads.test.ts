/**
 * Uploads that stop before they are complete: the handler must not accept the received part as the whole, whatever
 * stopped it.
 */
import assert from "node:assert/strict";
import { once } from "node:events";
import { connect as connectHttp2, constants } from "node:http2";
import { connect, type Socket } from "node:net";
import test from "ava";
import { toBinary, type DescMessage } from "@bufbuild/protobuf";
import { WriteFileRequestSchema } from "../../../../gen/svc/v1/file_pb.ts";
import { SvcError } from "../../../../src/errors.ts";
import { mintToken } from "../../../../src/access/tokens/token-digest.ts";
import { eventually } from "../../../support/eventually.ts";
import { sampleMessage } from "../../../support/sample-message.ts";
import { openGateway, type TestGateway } from "../../../server/http/support/gateway.ts";

const method = "svc.v1.FileService/WriteFile";
const message = toBinary<DescMessage>(WriteFileRequestSchema, sampleMessage(WriteFileRequestSchema, {}));
const framed = Buffer.alloc(5 + message.length);
framed.writeUInt32BE(message.length, 1);
framed.set(message, 5);

/** A request that has sent a part of its body, and a function that abandons it. */
type Begin = (gateway: TestGateway, headers: Readonly<Record<string, string>>) => Promise<() => void>;

const overHttp1 =
  (line: string, type: string, body: Uint8Array): Begin =>
  async (gateway, headers) => {
    const socket: Socket = connect(gateway.port, "127.0.0.1").on("error", () => undefined);
    const lines = { host: "localhost", "content-type": type, "content-length": "100", ...headers };
    const head = Object.entries(lines).map(([name, value]) => `${name}: ${value}\r\n`);
    socket.write(`${line} HTTP/1.1\r\n${head.join("")}\r\n`);
    socket.write(body);
    await once(socket, "connect");
    socket.resume();
    return () => socket.destroy();
  };

const overHttp2 =
  (verb: string, path: string, type: string, body: Uint8Array, resetCode?: number): Begin =>
  async (gateway, headers) => {
    const session = connectHttp2(gateway.url).on("error", () => undefined);
    await once(session, "connect");
    const head = { ":method": verb, ":path": path, "content-type": type, te: "trailers" };
    const stream = session.request({ ...head, ...headers }).on("error", () => undefined);
    stream.write(body);
    stream.resume();
    return () => {
      if (resetCode !== undefined && !stream.closed) stream.close(resetCode, () => session.destroy());
      else session.destroy();
    };
  };

const restPath = "/v1/files/content?path=/tmp&name=x";
const ways: Readonly<Record<string, Begin>> = {
  "REST over HTTP/1.1": overHttp1(`PUT ${restPath}`, "application/octet-stream", Buffer.from("begun")),
  "REST over HTTP/2": overHttp2("PUT", restPath, "application/octet-stream", Buffer.from("begun")),
  "Connect over HTTP/1.1": overHttp1(`POST /${method}`, "application/connect+proto", framed),
  "Connect over HTTP/2": overHttp2("POST", `/${method}`, "application/connect+proto", framed),
  "gRPC over HTTP/2": overHttp2("POST", `/${method}`, "application/grpc", framed),
};

// Node's HTTP/2 client, and gRPC on top of it, ends an abandoned stream before it resets it.
for (const name of ["NGHTTP2_CANCEL", "NGHTTP2_NO_ERROR"] as const) {
  const overIt = (verb: string, path: string, type: string, body: Uint8Array): Begin =>
    overHttp2(verb, path, type, body, constants[name]);
  Object.assign(ways, {
    [`REST, given up with ${name}`]: overIt(
      "PUT",
      restPath,
      "application/octet-stream",
      Buffer.from("begun"),
    ),
    [`Connect, given up with ${name}`]: overIt("POST", `/${method}`, "application/connect+proto", framed),
    [`gRPC, given up with ${name}`]: overIt("POST", `/${method}`, "application/grpc", framed),
  });
}

for (const [way, begin] of Object.entries(ways)) {
  /** Starts an upload and, once its handler reads, stops it; returns the handler's result and how it was recorded. */
  async function cut(
    headers: Record<string, string>,
    end: (leave: () => void, token: AbortController) => void,
  ) {
    const reading = Promise.withResolvers<undefined>();
    const outcome = Promise.withResolvers<string>();
    const token = mintToken("primary");
    const ended = new AbortController();
    await using gateway = await openGateway({
      tokens: {
        authenticate: (presented) =>
          presented === token ? { kind: "primary", digest: "0123456789ab", ended: ended.signal } : null,
      },
      handlers: {
        file: {
          async writeFile(requests) {
            try {
              for await (const _piece of requests) reading.resolve(undefined);
              outcome.resolve("whole");
            } catch (error) {
              outcome.resolve("cut");
              throw error;
            }
            return {};
          },
        },
      },
    });
    const leave = await begin(gateway, { authorization: `Bearer ${token}`, ...headers });
    await reading.promise;
    end(leave, ended);
    const came = await outcome.promise;
    await eventually(() => assert.equal(gateway.counts.length, 1));
    leave();
    const errors = gateway.lines.filter(({ level }) => level === "error");
    return { came, count: gateway.counts[0], errors };
  }

  test(`${way}: an upload whose client disconnects fails as interrupted, not as a defect`, async (t) => {
    const { came, count, errors } = await cut({}, (leave) => leave());
    t.is(came, "cut");
    t.is(count, `${method} canceled`);
    t.deepEqual(errors, []);
  });

  test(`${way}: an upload whose token is revoked fails as interrupted`, async (t) => {
    const { came, count, errors } = await cut({}, (_leave, token) =>
      token.abort(new SvcError("unauthenticated", "the token was revoked")),
    );
    t.is(came, "cut");
    t.is(count, `${method} unauthenticated`);
    t.deepEqual(errors, []);
  });
}

test("gRPC over HTTP/2: an upload past its deadline is interrupted", async (t) => {
  const outcome = Promise.withResolvers<string>();
  await using gateway = await openGateway({
    handlers: {
      file: {
        async writeFile(requests) {
          try {
            for await (const _piece of requests);
            outcome.resolve("whole");
          } catch (error) {
            outcome.resolve("cut");
            throw error;
          }
          return {};
        },
      },
    },
  });
  const leave = await ways["gRPC over HTTP/2"]!(gateway, {
    authorization: `Bearer ${gateway.token}`,
    "grpc-timeout": "300m",
  });
  t.is(await outcome.promise, "cut");
  await eventually(() => assert.deepEqual(gateway.counts, [`${method} deadline_exceeded`]));
  leave();
});
