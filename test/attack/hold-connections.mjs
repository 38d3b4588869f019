/**
 * Holds connections that send nothing or only part of a request, and reopens each that is closed. Prints `held` once
 * all were opened; exits when its standard input closes. A program, so that it can run as another user.
 */
import { connect } from "node:net";

/** @type {{ targets: { path?: string, host?: string, port?: number, localAddress?: string, count: number }[], first: string }} */
const { targets, first } = JSON.parse(process.argv[2] ?? "");
const total = targets.reduce((sum, { count }) => sum + count, 0);
const pauseMs = 50;
let opened = 0;

/** @param {import("node:net").NetConnectOpts} target */
function hold(target) {
  const socket = connect(target);
  socket.once("connect", () => {
    if (first !== "") socket.write(first);
    if (++opened === total) console.log("held");
  });
  socket.on("error", () => undefined).resume();
  socket.once("close", () => setTimeout(hold, pauseMs, target));
}

for (const { count, ...target } of targets) {
  for (let n = 0; n < count; n++) hold(/** @type {import("node:net").NetConnectOpts} */ (target));
}
process.stdin.resume().on("end", () => process.exit());
