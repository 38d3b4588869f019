/** The entry point of the store's threads: the writer that lives as long as the store, and short maintenance tasks. */
import { parentPort, workerData, type MessagePort } from "node:worker_threads";
import { inspectDatabase } from "./inspection.ts";
import type {
  MaintenanceReply,
  MaintenanceTask,
  WorkerRole,
  WriterCommand,
  WriterReply,
} from "./messages.ts";
import { prepareDatabase } from "./prepare.ts";
import { makeReserve } from "./reserve.ts";
import { isSnapshotStale, takeSnapshot } from "./snapshot.ts";
import { storeFiles, type StoreFiles } from "./store-files.ts";
import { errorMessage } from "./thread-errors.ts";
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
    // Nobody's answer waits for it.
    writer.keepReserve();
  });
}

function maintain(files: StoreFiles, migrations: readonly string[], task: MaintenanceTask): MaintenanceReply {
  switch (task.kind) {
    case "inspect": {
      const { condition } = inspectDatabase(files.database, migrations.length);
      return { kind: "inspected", corrupt: condition !== "sound" };
    }
    case "prepare": {
      const restoration = prepareDatabase(files, migrations, task.nowMs);
      makeReserveIfPossible(files);
      return { kind: "prepared", ...(restoration === undefined ? {} : { restoration }) };
    }
    case "housekeep":
      if (isSnapshotStale(files)) takeSnapshot(files, migrations.length);
      makeReserve(files);
      return { kind: "housekept" };
  }
}

/** From the first day on a disk may fill up; one that is full already keeps nobody from opening the store. */
function makeReserveIfPossible(files: StoreFiles): void {
  try {
    makeReserve(files);
  } catch {
    // The next housekeeping tries again, and says so if it fails too.
  }
}

function main(port: MessagePort, role: WorkerRole): void {
  const files = storeFiles(role.dir);
  if (role.role === "writer") {
    serveWrites(port, files);
    return;
  }
  let reply: MaintenanceReply;
  try {
    reply = maintain(files, role.migrations, role.task);
  } catch (error) {
    reply = errorMessage(error);
  }
  port.postMessage(reply);
}

if (parentPort !== null) main(parentPort, workerData as WorkerRole);
