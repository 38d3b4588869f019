/**
 * `node simulated-nodes.ts PATH COUNT`: simulated nodes in one process, each with the real request gateway and pipeline
 * on its own socket, `PATH.0` and so on, with services that store pushes and return nothing else. Prints a line when
 * all listen.
 */
import { once } from "node:events";
import { createPipeline } from "../../src/server/rpc/pipeline.ts";
import { Listeners } from "../../src/server/http/listeners.ts";
import type { Schedule } from "../../gen/svc/v1/schedule_pb.ts";
import { fakeServices } from "../../test/server/http/support/fake-services.ts";

const [, , path, count] = process.argv;
if (path === undefined) throw new Error("usage: simulated-nodes.ts PATH COUNT");
const log = { info: () => undefined, warn: console.error, error: console.error };

function createNode(name: string): Listeners {
  const pushed = new Map<string, Schedule[]>();
  const pipeline = createPipeline({
    log,
    services: fakeServices({
      daemon: {
        getStatus: () => ({
          ...{ version: "0.2.0", hostname: name, mode: "system" },
          capabilities: ["events", "metrics", "schedules"],
        }),
      },
      schedule: {
        replaceManagedSchedules({ managedBy, schedules }) {
          pushed.set(managedBy, schedules);
          return { schedules };
        },
      },
      monitor: { getSystemMetrics: () => ({}) },
      event: {
        async *streamEvents(_request, { signal }) {
          yield { cursor: `${name}-0`, kind: "begin" };
          if (!signal.aborted) await once(signal, "abort");
        },
      },
    }),
  });
  return new Listeners({
    ...{ pipeline, log, tokens: { authenticate: () => null }, mode: "system" },
    selfUid: process.getuid?.() ?? 0,
    socketPath: `${path}.${name}`,
  });
}

const nodes = Array.from({ length: Number(count) }, (_, at) => createNode(String(at)));
for (const node of nodes) await node.start();
console.log("ready");
const { promise, resolve } = Promise.withResolvers<unknown>();
process.once("SIGTERM", resolve);
await promise;
await Promise.all(nodes.map((node) => node.stop()));
