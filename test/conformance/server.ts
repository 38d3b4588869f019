/**
 * The server under test, as `connectconformance --mode server` starts it: svc's listeners with the ConformanceService
 * behind the pipeline. Reads one ServerCompatRequest from standard input and writes a ServerCompatResponse. `node
 * test/conformance/server.ts DESCRIPTORS`
 */
import { once } from "node:events";
import { mkdtemp, readFile, rm } from "node:fs/promises";
import { connect, createServer, type AddressInfo, type Server } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  create,
  createFileRegistry,
  fromBinary,
  toBinary,
  type DescMessage,
  type Message,
} from "@bufbuild/protobuf";
import { FileDescriptorSetSchema } from "@bufbuild/protobuf/wkt";
import { ConnectError, type HandlerContext } from "@connectrpc/connect";
import type { SvcError } from "../../src/errors.ts";
import { connectErrorOf } from "../../src/server/rpc/connect/connect-errors.ts";
import { createPipeline, type Pipeline } from "../../src/server/rpc/pipeline.ts";
import { readOnlyForUsers } from "../../src/server/rpc/bound-service.ts";
import { Listeners } from "../../src/server/http/listeners.ts";
import { conformanceService, expectedErrorKey } from "./conformance-service.ts";

const [descriptors] = process.argv.slice(2);
if (descriptors === undefined) throw new Error("name the file of the suite's descriptors");
const registry = createFileRegistry(fromBinary(FileDescriptorSetSchema, await readFile(descriptors)));
const request = fromBinary(schemaOf("ServerCompatRequest"), await readRequest()) as Message & {
  messageReceiveLimit: number;
};

// The suite requests errors: only warnings are useful.
const log = { info: ignore, warn: console.error, error: ignore };
const pipeline = createPipeline({
  services: [{ ...conformanceService(registry), policy: readOnlyForUsers }],
  jsonOptions: { registry },
  log,
});
const directory = await mkdtemp(join(tmpdir(), "svc-conformance-"));
const socketPath = join(directory, "svc.sock");
await using listeners = new Listeners({
  pipeline: withExpectedErrors(pipeline),
  tokens: { authenticate: () => null },
  mode: "system",
  selfUid: process.getuid?.() ?? 0,
  socketPath,
  limits: request.messageReceiveLimit === 0 ? {} : { maxMessageBytes: request.messageReceiveLimit },
  log,
});
await listeners.start();
const forwarder = await forwardTo(socketPath);

const { port } = forwarder.address() as AddressInfo;
const responseSchema = schemaOf("ServerCompatResponse");
const response = Buffer.from(toBinary(responseSchema, create(responseSchema, { host: "127.0.0.1", port })));
const size = Buffer.alloc(4);
size.writeUInt32BE(response.length);
process.stdout.write(Buffer.concat([size, response]));

await once(process, "SIGTERM");
forwarder.close();
await rm(directory, { recursive: true, force: true });
await listeners.stop();
process.exit();

function schemaOf(name: string): DescMessage {
  const schema = registry.getMessage(`connectrpc.conformance.v1.${name}`);
  if (schema === undefined) throw new Error(`${descriptors} contains no ${name}`);
  return schema;
}

/** Standard input stays open, so the request's end follows from its length. */
async function readRequest(): Promise<Uint8Array> {
  let received = Buffer.alloc(0);
  for await (const chunk of process.stdin as AsyncIterable<Buffer>) {
    received = Buffer.concat([received, chunk]);
    if (received.length >= 4 && received.length >= 4 + received.readUInt32BE()) break;
  }
  return received.subarray(4, 4 + received.readUInt32BE());
}

/**
 * The suite's client sends no bearer token: its bytes are forwarded to the unix socket, where the kernel identifies the
 * caller.
 */
async function forwardTo(path: string): Promise<Server> {
  const server = createServer({ allowHalfOpen: true, noDelay: true }, (outside) => {
    const inside = connect({ path, allowHalfOpen: true });
    outside.pipe(inside).pipe(outside);
    outside.on("error", () => inside.destroy()).on("close", () => inside.destroy());
    inside.on("error", () => outside.destroy()).on("close", () => outside.destroy());
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return server;
}

/** The pipeline's errors, with the details that the suite requires instead of svc's. */
function withExpectedErrors(inner: Pipeline): Pipeline {
  const expected = (context: HandlerContext, error: unknown): unknown =>
    context.values.get(expectedErrorKey) ?? withoutDetails(error);
  type Unary = (input: unknown, context: HandlerContext) => Promise<unknown>;
  type Streaming = (input: unknown, context: HandlerContext) => AsyncIterable<unknown>;
  const unary =
    (handler: Unary): Unary =>
    async (input, context) => {
      try {
        return await handler(input, context);
      } catch (error) {
        throw expected(context, error);
      }
    };
  const streaming = (handler: Streaming): Streaming =>
    async function* (input, context) {
      try {
        yield* handler(input, context);
      } catch (error) {
        throw expected(context, error);
      }
    };
  return {
    ...inner,
    // The path of calls that do not pass Connect for Node.
    async invoke(method, message, call) {
      try {
        return await inner.invoke(method, message, call);
      } catch (error) {
        const { cause } = error as SvcError;
        throw cause instanceof ConnectError ? cause : withoutDetails(connectErrorOf(error as SvcError));
      }
    },
    routes: (router, only) => {
      const wrapping: typeof router = {
        ...router,
        rpc(method, impl, options) {
          const { methodKind } = method;
          const isStreaming = methodKind === "server_streaming" || methodKind === "bidi_streaming";
          const wrapped = isStreaming ? streaming(impl as Streaming) : unary(impl as Unary);
          router.rpc(method, wrapped as typeof impl, options);
          return this;
        },
      };
      inner.routes(wrapping, only);
    },
  };
}

function withoutDetails(error: unknown): unknown {
  return error instanceof ConnectError ? new ConnectError(error.rawMessage, error.code) : error;
}

function ignore(): void {}
