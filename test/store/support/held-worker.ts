/** The store's threads, with a housekeeping that does not end before the file `go on` exists next to the database. */
import { existsSync } from "node:fs";
import { join } from "node:path";
import { parentPort, workerData } from "node:worker_threads";
import type { MaintenanceReply, WorkerRole } from "../../../src/store/messages.ts";
import { programs } from "../../support/programs.ts";

if (parentPort === null) throw new Error("this is a thread");
const { dir } = workerData as WorkerRole;
const post = parentPort.postMessage.bind(parentPort);
parentPort.postMessage = (reply: MaintenanceReply) => {
  if (reply.kind !== "housekept") {
    post(reply);
    return;
  }
  const timer = setInterval(() => {
    if (!existsSync(join(dir, "go on"))) return;
    clearInterval(timer);
    post(reply);
  }, 5);
};
await import(programs.storeWorker.href);
