/**
 * A daemon's lists of ports and processes compared with `ss` and `ps`, while many start and exit. With SVC_LONG=1: 20
 * times over 2,000 processes and 5,000 sockets.
 */
import test from "ava";
import { MonitorService } from "../../../gen/svc/v1/monitor_pb.ts";
import { ProcessService } from "../../../gen/svc/v1/process_pb.ts";
import { Crowd } from "../../support/crowd.ts";
import { isRoot, needsRoot, startDaemon } from "../../support/daemon.ts";
import { eventually } from "../../support/eventually.ts";
import {
  assertBetween,
  rowsOfPorts,
  rowsOfProcesses,
  rowsOfPs,
  rowsOfSs,
  type Rows,
} from "../../support/other-readers.ts";

const isLong = process.env["SVC_LONG"] !== undefined;
const size = isLong ? { processes: 2_000, sockets: 5_000 } : { processes: 150, sockets: 400 };
const snapshots = isLong ? 20 : 4;
const deadlineMs = 120_000;

(isRoot ? test : test.skip)(
  `ports and processes are those of ss and ps in ${snapshots} snapshots of ${size.processes} and ${size.sockets}${needsRoot}`,
  async (t) => {
    t.timeout(30 * 60_000);
    await using daemon = await startDaemon();
    const ports = async (): Promise<Rows> =>
      rowsOfPorts((await daemon.client(MonitorService).listListeningPorts({})).ports);
    const processes = async (): Promise<Rows> => {
      const client = daemon.client(ProcessService);
      return rowsOfProcesses((await client.listProcesses({ kernelThreads: true, limit: 10_000 })).processes);
    };
    await using crowd = await Crowd.start(size);
    for (let n = 0; n < snapshots; n += 1) {
      const part = n === 0 ? 1 : 0.5 + Math.random() / 2;
      const now = {
        processes: Math.round(size.processes * part),
        sockets: Math.round(size.sockets * part),
      };
      await crowd.become(now);
      const own = (rows: Rows, pidOf: RegExp): string[] =>
        rows.filter((row) => crowd.pids.has(Number(pidOf.exec(row)?.[1]))).toSorted();
      for (const [what, ours, theirs, pidOf, count] of [
        ["ports", ports, rowsOfSs, / (\d+)$/, now.sockets],
        ["processes", processes, rowsOfPs, /^(\d+) /, now.processes],
      ] as const) {
        // The test's own processes do not change, so one comparison is enough.
        const rows = await ours();
        t.is(own(rows, pidOf).length, count, what);
        t.deepEqual(own(rows, pidOf), own(await theirs(), pidOf), what);
        // All others start and exit.
        await eventually(async () => {
          const before = await theirs();
          assertBetween(before, await ours(), await theirs());
        }, deadlineMs);
      }
    }
  },
);
