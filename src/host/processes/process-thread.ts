/** Entry point of the host thread: answers requests about all processes and sockets, one after the other. */
import { parentPort } from "node:worker_threads";
import type { HostQuestion } from "./process-questions.ts";
import { ProcessScan } from "./process-scan.ts";
import { SocketScan } from "../sockets/socket-scan.ts";

const processes = new ProcessScan();
const sockets = new SocketScan(processes);
parentPort?.on("message", ({ kind, ...apps }: HostQuestion) => {
  parentPort?.postMessage(kind === "processes" ? processes.processes(apps) : sockets.sockets(apps));
});
