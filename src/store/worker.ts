/** The entry point of the store's threads: the writer, which lives as long as the store, and short maintenance tasks. */
import { parentPort, workerData, type MessagePort } from "node:worker_threads";
import { inspectDatabase } from "./inspection.ts";
import { repairIndex } from "./repair-index.ts";
import {
  type MaintenanceReply,
  type MaintenanceTask,
  type WorkerRole,
  type WriterCommand,
  type WriterReply,
  errorMessage,
} from "./messages.ts";
import { prepareDatabase } from "./prepare.ts";
import { makeReserve } from "./reserve.ts";
import { isSnapshotStale, takeSnapshot } from "./snapshot.ts";
import { storeFiles, type StoreFiles } from "./store-files.ts";
import { Writer } from "./writer.ts";

function serveWrites(port: MessagePort, files: StoreFiles): void {
  const writer = new Writer(files);
  port.on("message", (command: WriterCommand) => {
    if (command.kind === "close") {
      writer[Symbol.dispose]();
      port.close();
      return;
    }
    port.postMessage({ outcomes: writer.commit(command.requests) } satisfies WriterReply);
    // No caller waits for it.
    writer.restoreReserve();
  });
}

async function* maintain(
  files: StoreFiles,
  migrations: readonly string[],
  task: MaintenanceTask,
): AsyncGenerator<MaintenanceReply> {
  switch (task.kind) {
    case "inspect": {
      const found = inspectDatabase(files.database, migrations.length, { comparesRemakable: false });
      yield { kind: "inspected", corrupt: found.condition !== "sound" };
      // A database with another schema is inspected as a whole when it is migrated.
      if (found.condition !== "sound" || found.version !== migrations.length) return;
      const repaired = await repairIndex(files);
      yield { kind: "compared", ...(repaired !== undefined && { repaired }) };
      return;
    }
    case "prepare": {
      const restoration = prepareDatabase(files, migrations, task.nowMs);
      makeReserveIfPossible(files);
      yield { kind: "prepared", ...(restoration === undefined ? {} : { restoration }) };
      return;
    }
    case "housekeep":
      if (isSnapshotStale(files)) takeSnapshot(files, migrations.length);
      makeReserve(files);
      yield { kind: "housekept" };
  }
}

/**
 * A disk may fill up at any time, so the reserve is created early. A disk that is already full must not prevent opening
 * the store.
 */
function makeReserveIfPossible(files: StoreFiles): void {
  try {
    makeReserve(files);
  } catch {
    // The next housekeeping tries again, and reports errors.
  }
}

async function main(port: MessagePort, role: WorkerRole): Promise<void> {
  const files = storeFiles(role.dir);
  if (role.role === "writer") {
    serveWrites(port, files);
    return;
  }
  try {
    for await (const reply of maintain(files, role.migrations, role.task)) port.postMessage(reply);
  } catch (error) {
    port.postMessage(errorMessage(error));
  }
}

if (parentPort !== null) void main(parentPort, workerData as WorkerRole);
