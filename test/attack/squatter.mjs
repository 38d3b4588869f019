/** Holds a TCP port of this host and prints every byte that it receives. Exits when its standard input closes. */
import { createServer } from "node:net";

const { port, host = "127.0.0.1" } = JSON.parse(process.argv[2] ?? "{}");
const server = createServer((socket) => {
  socket.on("error", () => undefined);
  socket.on("data", (bytes) => console.log(`received ${bytes.toString("latin1").replace(/\s+/g, " ")}`));
});
server.listen(port, host, () => console.log("listening"));
process.stdin.resume().once("end", () => process.exit());
