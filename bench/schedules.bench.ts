/** The cost of many schedules: listing, pushing, memory; each compared with the plain work of its parts. */
import { connect as connectSocket } from "node:net";
import { join } from "node:path";
import { DatabaseSync } from "node:sqlite";
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";
import { createClient } from "@connectrpc/connect";
import { createGrpcTransport } from "@connectrpc/connect-node";
import { ScheduleService } from "../gen/svc/v1/schedule_pb.ts";
import { JobRegistry } from "../src/scheduler/jobs/job-registry.ts";
import { documentOf, writeJobs } from "../src/scheduler/jobs/job-row.ts";
import { openStore } from "../src/store/store.ts";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import { amount, type Bench, type Result } from "./support/result.ts";
import { compareMs } from "./support/statistics.ts";
import { temporaryDirectory } from "./support/temporary-directory.ts";
import { parseTrigger } from "../test/scheduler/support/parse-trigger.ts";

const rounds = 5;
const pushed = 10_000;
const pageSize = 1_000;
const kept = 100_000;

export const bench: Bench = {
  name: "schedules",
  async run() {
    await using daemon = await startDaemon();
    return [await measurePush(daemon), await measureList(daemon), await measureMemory()];
  },
};

const idOf = (index: number): string => `job-${String(index).padStart(6, "0")}`;
const commandOf = (index: number): string => `/usr/local/bin/report --part ${index}`;

/**
 * A push over gRPC in which every job changed, including the client's part, compared with rows of the same text in one
 * durable transaction of a plain database: the complete document that svc stores of a job.
 */
async function measurePush(daemon: BenchDaemon): Promise<Result> {
  const transport = createGrpcTransport({
    baseUrl: "http://localhost",
    nodeOptions: { createConnection: () => connectSocket(daemon.socket) },
  });
  const client = createClient(ScheduleService, transport);
  await using directory = await temporaryDirectory();
  using database = openBare(join(directory.path, "bare.db"));
  const write = database.prepare("INSERT OR REPLACE INTO jobs VALUES (?, ?, ?)");
  let round = 0;
  const { measuredMs, yardstickMs } = await compareMs(
    rounds,
    async () => {
      const comment = `round ${++round}`;
      const schedules = Array.from({ length: pushed }, (_, index) => ({
        id: idOf(index),
        trigger: `${index % 60} ${index % 24} * * *`,
        comment,
        action: { type: "shell", command: commandOf(index) },
      }));
      await client.replaceManagedSchedules({ managedBy: "platform", schedules });
    },
    () => {
      database.exec("BEGIN IMMEDIATE");
      for (let index = 0; index < pushed; index++) {
        const document = {
          trigger: `${index % 60} ${index % 24} * * *`,
          timeZone: "",
          enabled: true,
          comment: `round ${round}`,
          action: { type: "shell", command: commandOf(index) },
          timeoutSecs: 600,
          jitterSecs: 0,
          retries: 0,
          catchUp: "none",
        };
        write.run(0, idOf(index), JSON.stringify(document));
      }
      database.exec("COMMIT");
      return Promise.resolve();
    },
  );
  return {
    what: `push of ${pushed.toLocaleString("en")} changed jobs over gRPC`,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `bare SQLite rows ${yardstickMs.toFixed(0)} ms`,
    value: measuredMs / yardstickMs,
    goal: 5,
    unit: "×",
    runs: rounds,
  };
}

function openBare(path: string): DatabaseSync {
  const database = new DatabaseSync(path);
  database.exec(
    `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
     CREATE TABLE jobs (owner INTEGER, id TEXT, document TEXT, PRIMARY KEY (owner, id)) STRICT`,
  );
  return database;
}

/** All pages of the pushed jobs over REST, compared with reading their rows and printing as much JSON. */
async function measureList(daemon: BenchDaemon): Promise<Result> {
  using database = new DatabaseSync(join(daemon.storeDir, "svc.db"), { readOnly: true });
  const read = database.prepare("SELECT * FROM jobs ORDER BY owner_uid, id");
  const pages: string[] = [];
  const list = async (): Promise<void> => {
    pages.length = 0;
    for (let token = ""; pages.length === 0 || token !== "";) {
      const text = await daemon.get(`/v1/schedules?limit=${pageSize}&page_token=${token}`);
      pages.push(text);
      token = /"next_page_token":"([^"]*)"/.exec(text)?.[1] ?? "";
    }
  };
  await list();
  const answers: unknown[] = pages.map((text) => JSON.parse(text) as unknown);
  const { measuredMs, yardstickMs } = await compareMs(rounds, list, () => {
    read.all();
    for (const answer of answers) JSON.stringify(answer);
    return Promise.resolve();
  });
  return {
    what: `list of ${pushed.toLocaleString("en")} jobs over REST, in pages of ${pageSize.toLocaleString("en")}`,
    measured: `${measuredMs.toFixed(0)} ms`,
    yardstick: `their rows and JSON.stringify ${yardstickMs.toFixed(0)} ms`,
    value: measuredMs / yardstickMs,
    goal: 4,
    unit: "×",
    runs: rounds,
  };
}

/** The registry's memory per job, compared with the text of the job itself. */
async function measureMemory(): Promise<Result> {
  await using directory = await temporaryDirectory();
  await using store = await openStore({ dir: directory.path });
  const triggers = Array.from({ length: 1_440 }, (_, minute) =>
    parseTrigger(`${minute % 60} ${Math.floor(minute / 60)} * * *`),
  );
  const fallback = parseTrigger("hourly");
  const jobs = Array.from({ length: kept }, (_, index) => ({
    id: idOf(index),
    document: documentOf({
      trigger: triggers[index % triggers.length] ?? fallback,
      timeZone: "Europe/Berlin",
      enabled: true,
      comment: "",
      managedBy: "platform",
      action: { type: "shell", command: commandOf(index) },
      timeoutSecs: 600,
      jitterSecs: 0,
      retries: 0,
      catchUp: "none",
    }),
  }));
  await store.write(writeJobs({ ownerUid: 0, managedBy: "platform", added: jobs, changed: [] }, Date.now()), {
    timeoutMs: 60_000,
  });
  const row = store.get<{ bytes: number }>("SELECT avg(length(document) + length(id)) AS bytes FROM jobs");
  setFlagsFromString("--expose-gc");
  const collect = runInNewContext("gc") as () => void;
  collect();
  const before = process.memoryUsage().heapUsed;
  using registry = new JobRegistry(store);
  await registry.untilCurrent();
  const count = registry.all().length;
  collect();
  const bytes = (process.memoryUsage().heapUsed - before) / count;
  const textBytes = row?.bytes ?? NaN;
  return {
    what: `memory per job, of ${kept.toLocaleString("en")} in the registry (${amount((bytes * kept) / 2 ** 20, "MiB")})`,
    measured: `${bytes.toFixed(0)} bytes`,
    yardstick: `the job as JSON ${textBytes.toFixed(0)} bytes`,
    value: bytes / textBytes,
    goal: 3,
    unit: "×",
    runs: 1,
  };
}
