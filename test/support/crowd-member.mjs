/** Holds the requested number of processes and sockets; exits with its parent. */
import { spawn } from "node:child_process";
import { createSocket } from "node:dgram";
import { once } from "node:events";
import { createServer } from "node:net";

/** @type {import("node:child_process").ChildProcess[]} */
const children = [];
/** @type {{ close(done: () => void): unknown }[]} */
const sockets = [];

/** @param {number} n its index: kinds alternate */
async function open(n) {
  const address = n % 2 === 0 ? "127.0.0.1" : "::1";
  if (n % 4 < 2) {
    const server = createServer().listen(0, address);
    await once(server, "listening");
    return server;
  }
  const datagrams = createSocket(n % 2 === 0 ? "udp4" : "udp6").bind(0, address);
  await once(datagrams, "listening");
  return datagrams;
}

/** @param {{ processes: number, sockets: number }} target */
async function become(target) {
  while (sockets.length < target.sockets) sockets.push(await open(sockets.length));
  for (const socket of sockets.splice(target.sockets))
    await new Promise((resolve) => socket.close(() => resolve(undefined)));
  while (children.length < target.processes) {
    const child = spawn("sleep", ["1000000"], { stdio: "ignore" });
    children.push(child);
    await once(child, "spawn");
  }
  const ended = children.splice(target.processes);
  await Promise.all(ended.map((child) => (child.kill("SIGKILL"), once(child, "exit"))));
  process.send?.(children.map(({ pid }) => pid));
}

process.on(
  "message",
  (target) => void become(/** @type {{ processes: number, sockets: number }} */ (target)),
);
process.on("disconnect", () => {
  for (const child of children) child.kill("SIGKILL");
  process.exit();
});
