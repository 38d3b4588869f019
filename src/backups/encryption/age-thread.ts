/** The entry point of the encryption thread. */
import { parentPort } from "node:worker_threads";
import { openHeader, sealHeader } from "./age-header.ts";
import { decryptChunks, encryptChunks } from "./age-payload.ts";
import type { AgeTask, AgeTasks } from "./age.ts";

async function answer(task: AgeTask): Promise<AgeTasks[keyof AgeTasks]["answer"]> {
  switch (task.kind) {
    case "seal":
      return sealHeader(task.recipients).catch(() => undefined);
    case "open":
      return openHeader(task.head, task.identities);
    case "encrypt":
      return encryptChunks(task.key, task);
    case "decrypt":
      return decryptChunks(task.key, task);
  }
}

parentPort?.on("message", (task: AgeTask) => {
  void answer(task).then((result) => {
    const isBytes = result instanceof Uint8Array && result.buffer instanceof ArrayBuffer;
    parentPort?.postMessage(result, isBytes ? [result.buffer] : []);
  });
});
