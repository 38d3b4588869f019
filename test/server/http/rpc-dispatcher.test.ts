/** Expensive parts are created on first use. */
import { createRequire } from "node:module";
import { createClient } from "@connectrpc/connect";
import test from "ava";
import { AppService } from "../../../gen/svc/v1/app_pb.ts";
import { DaemonService } from "../../../gen/svc/v1/daemon_pb.ts";
import { createPipeline } from "../../../src/server/rpc/pipeline.ts";
import { collectLog, openGateway } from "./support/gateway.ts";
import { transportTo } from "./support/clients.ts";
import { fakeServices } from "./support/fake-services.ts";

const isExpressLoaded = (): boolean =>
  Object.keys(createRequire(import.meta.url).cache).some((file) =>
    file.endsWith("node_modules/express/index.js"),
  );

test("a method's handlers are created on first use, Express only for HTTP/1.1, and neither for a plain unary call", async (t) => {
  const pipeline = createPipeline({
    services: fakeServices({
      app: {
        async *streamAppLogs() {
          await Promise.resolve();
          yield { lines: [{ text: "one" }] };
        },
      },
    }),
    log: collectLog().log,
    audit: () => undefined,
    observe: () => undefined,
  });
  const made: unknown[] = [];
  const counted = {
    ...pipeline,
    routes: (...[router, only]: Parameters<typeof pipeline.routes>) => {
      made.push(only);
      pipeline.routes(router, only);
    },
  };
  await using gateway = await openGateway({ pipeline: counted });
  const madeFor = async (call: () => Promise<unknown>): Promise<number> => {
    const before = made.length;
    await call();
    return made.length - before;
  };

  const http2 = transportTo(gateway, "gRPC/h2c", "TCP");
  const stream = (transport: typeof http2) => () =>
    Array.fromAsync(createClient(AppService, transport).streamAppLogs({ id: "hello" }));
  const http1 = transportTo(gateway, "Connect/h1", "TCP");
  t.is(await madeFor(() => createClient(DaemonService, http2).getStatus({})), 0);
  t.is(await madeFor(stream(http2)), 1);
  t.is(await madeFor(stream(http2)), 0);
  t.is(await madeFor(() => createClient(DaemonService, http1).getStatus({})), 0);
  t.false(isExpressLoaded());
  t.is(await madeFor(stream(http1)), 1);
  t.true(isExpressLoaded());
  t.is(await madeFor(stream(http1)), 0);
  t.deepEqual(made, [AppService.method.streamAppLogs, AppService.method.streamAppLogs]);
});
