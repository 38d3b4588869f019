// A proxy to a unix socket: run as a user, it lets a test call the daemon with that user's credentials.
import { connect, createServer } from "node:net";

const [listenPath, targetPath] = process.argv.slice(2);
const server = createServer((inbound) => {
  const outbound = connect(/** @type {string} */ (targetPath));
  inbound.pipe(outbound).pipe(inbound);
  inbound.on("error", () => outbound.destroy());
  outbound.on("error", () => inbound.destroy());
  inbound.on("close", () => outbound.destroy());
  outbound.on("close", () => inbound.destroy());
});
server.listen(/** @type {string} */ (listenPath), () => process.stdout.write("ready\n"));
// Exits when its standard input closes.
process.stdin.resume().on("end", () => process.exit(0));
