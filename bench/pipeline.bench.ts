/** The cost of a call and of a route lookup in this process, without a socket. */
import { create } from "@bufbuild/protobuf";
import { DaemonService, GetStatusRequestSchema } from "../gen/svc/v1/daemon_pb.ts";
import { createPipeline } from "../src/server/rpc/pipeline.ts";
import { canonicalPath } from "../src/server/rest/path.ts";
import { Router } from "../src/server/rest/router.ts";
import { parseTemplate } from "../src/server/rest/template.ts";
import { fakeServices } from "../test/server/http/support/fake-services.ts";
import { amount, type Bench } from "./support/result.ts";
import { median } from "./support/statistics.ts";

const runs = 25;
const calls = 5_000;
const matches = 100_000;
const routeCount = 200;

export const bench: Bench = {
  name: "pipeline",
  async run() {
    const handle = (): object => ({ version: "1", caller: { uid: 0, user: "root", root: true } });
    const pipeline = createPipeline({
      services: fakeServices({ daemon: { getStatus: handle } }),
      log: { info: () => undefined, error: console.error },
    });
    const method = DaemonService.method.getStatus;
    const user = { uid: 0, user: "root", root: true, kind: "peer", ownerUid: 0 } as const;
    const call = { user, requestId: "", protocolName: "bench" };
    const [calledUs, directUs] = [[] as number[], [] as number[]];
    for (let run = 0; run < runs; run += 1) {
      calledUs.push(await costUs(calls, () => pipeline.invoke(method, create(GetStatusRequestSchema), call)));
      directUs.push(await costUs(calls, () => Promise.resolve(create(method.output, handle()))));
    }

    const router = new Router(syntheticRoutes());
    const paths = Array.from({ length: routeCount }, (_, at) =>
      canonicalPath(`/v1/things${at}/some-id/parts`, { escapedSlash: "reject" }),
    );
    const matchUs: number[] = [];
    for (let run = 0; run < runs; run += 1) {
      const startedAt = process.cpuUsage();
      for (let at = 0; at < matches; at += 1) {
        if (router.match("GET", paths[at % routeCount]!).kind !== "route") throw new Error("no match");
      }
      matchUs.push(spentUs(startedAt) / matches);
    }
    return [
      {
        what: "a call through the pipeline: access, rules, handler, response",
        measured: `${amount(median(calledUs), "µs")} of processor time`,
        yardstick: `handler and \`create\` alone ${amount(median(directUs), "µs")}`,
        value: median(calledUs) - median(directUs),
        goal: 10,
        unit: "µs",
        runs,
      },
      {
        what: `route match, ${routeCount} routes`,
        measured: `${amount(median(matchUs), "µs")} of processor time`,
        yardstick: "none",
        value: median(matchUs),
        goal: 1,
        unit: "µs",
        runs,
      },
    ];
  },
};

async function costUs(times: number, work: () => Promise<unknown>): Promise<number> {
  const startedAt = process.cpuUsage();
  for (let time = 0; time < times; time += 1) await work();
  return spentUs(startedAt) / times;
}

function spentUs(since: NodeJS.CpuUsage): number {
  const { user, system } = process.cpuUsage(since);
  return user + system;
}

function syntheticRoutes() {
  return Array.from({ length: routeCount }, (_, at) => ({
    httpMethod: "GET",
    template: parseTemplate(`/v1/things${at}/{id}/parts`),
    method: DaemonService.method.getStatus,
    body: "",
    responseBody: "",
  }));
}
