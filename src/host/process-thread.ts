/** The entry point of the host's thread: looks at all processes and sockets, one question after the other. */
import { parentPort } from "node:worker_threads";
import type { HostQuestion } from "./process-questions.ts";
import { ProcessScan } from "./process-scan.ts";
import { SocketScan } from "./socket-scan.ts";

const processes = new ProcessScan();
const sockets = new SocketScan(processes);
parentPort?.on("message", ({ kind, ...apps }: HostQuestion) => {
  parentPort?.postMessage(kind === "processes" ? processes.processes(apps) : sockets.sockets(apps));
});
