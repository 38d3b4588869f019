// Replaces an app's supervisor and claims to be another process. argv: the app's run directory, the claimed PID.
import { readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";

const [, , runDir = "", claimed = ""] = process.argv;
process.chdir(runDir);
const state = JSON.parse(readFileSync("state.json", "utf8"));
const stat = readFileSync(`/proc/${claimed}/stat`, "latin1");
const startTicks = Number(stat.slice(stat.lastIndexOf(")") + 2).split(" ")[19]);
const supervisor = { pid: Number(claimed), startTicks };
const claim = { ...state, final: false, phase: "RUNNING", supervisor };
const hello = { type: "hello", protocol: { min: 1, max: 1 }, bootId: state.bootId, ...supervisor };
const lines = [hello, { type: "state", state: claim }].map((line) => `${JSON.stringify(line)}\n`);
// Stopped before it is killed: on exit it would write its own state.
process.kill(state.supervisor.pid, "SIGSTOP");
writeFileSync("state.json", JSON.stringify(claim));
rmSync("supervisor.sock", { force: true });
createServer((socket) => {
  socket.on("error", () => undefined).resume();
  socket.write(lines.join(""), () => process.stdout.write("said\n"));
}).listen("supervisor.sock", () => process.kill(state.supervisor.pid, "SIGKILL"));
