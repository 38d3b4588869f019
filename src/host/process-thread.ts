/** The entry point of the host's thread: looks at all processes and sockets, one question after the other. */
import { parentPort, type MessagePort } from "node:worker_threads";
import type { HostQuestion, HostReply } from "./process-questions.ts";
import { ProcessScan } from "./process-scan.ts";
import { SocketScan } from "./socket-scan.ts";

function serve(port: MessagePort): void {
  const processes = new ProcessScan();
  const sockets = new SocketScan(processes);
  port.on("message", (question: HostQuestion) => {
    let reply: HostReply;
    try {
      const { runs } = question;
      const answer = question.kind === "processes" ? processes.processes(runs) : sockets.sockets(runs);
      reply = { answer };
    } catch (error) {
      reply = { error: String(error) };
    }
    port.postMessage(reply);
  });
}

if (parentPort !== null) serve(parentPort);
