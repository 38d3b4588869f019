/** A store of a host that has been used for long: many jobs and audit records. */
import { AuditTrail } from "../../src/observability/audit/audit-trail.ts";
import { documentOf, writeJobs } from "../../src/scheduler/jobs/job-row.ts";
import { openStore } from "../../src/store/store.ts";
import { parseTrigger } from "../../test/scheduler/support/parse-trigger.ts";
import type { BenchDaemon } from "./daemon.ts";

/** Writes `jobs` jobs, and audit records until there are `records`. The daemon must be stopped. */
export async function addHistory(
  daemon: BenchDaemon,
  { jobs, records }: { jobs: number; records: number },
): Promise<void> {
  await using store = await openStore({ dir: daemon.storeDir });
  const added = Array.from({ length: jobs }, (_, index) => ({
    id: `job-${String(index).padStart(6, "0")}`,
    document: documentOf({
      trigger: parseTrigger(`${index % 60} ${index % 24} 29 2 *`),
      timeZone: "Europe/Berlin",
      enabled: true,
      comment: "",
      managedBy: "platform",
      action: { type: "shell", command: `/usr/local/bin/report --part ${index}` },
      timeoutSecs: 600,
      jitterSecs: 0,
      retries: 0,
      catchUp: "none",
    }),
  }));
  await store.write(writeJobs({ ownerUid: 0, managedBy: "platform", added, changed: [] }, Date.now()), {
    timeoutMs: 60_000,
  });
  const row = store.get<{ records: number }>("SELECT count(*) AS records FROM audit");
  await using trail = new AuditTrail({
    store,
    log: console,
    userName: () => Promise.resolve("root"),
    now: Date.now,
    maxPending: records,
  });
  for (let record = row?.records ?? 0; record < records; record += 1) {
    trail.append({
      requestId: `bench-${record}`,
      method: "svc.v1.AppService/RestartApp",
      protocolName: "rest",
      user: { uid: 0, kind: "local", ownerUid: 0, peerUid: 0 },
      target: `idle-${record % 1_000}`,
      result: "ok",
      durationMs: record % 500,
    });
  }
  await trail.flush();
}
