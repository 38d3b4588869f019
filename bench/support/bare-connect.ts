/**
 * `node bare-connect.ts SOCKET 1|2`: plain connect-node on HTTP/1.1 or cleartext HTTP/2. Prints a line when it listens.
 */
import { createServer } from "node:http";
import { createServer as createHttp2Server } from "node:http2";
import { connectNodeAdapter } from "@connectrpc/connect-node";
import { DaemonService } from "../../gen/svc/v1/daemon_pb.ts";

const [, , socket, version] = process.argv;
if (socket === undefined) throw new Error("usage: bare-connect.ts SOCKET 1|2");
const handler = connectNodeAdapter({
  routes: (router) =>
    router.rpc(DaemonService.method.getStatus, () => ({
      version: "peer",
      hostname: "0",
      caller: { uid: 0, user: "root", root: true },
    })),
});
const server = version === "2" ? createHttp2Server(handler) : createServer(handler);
server.listen(socket, () => console.log("ready"));
process.once("SIGTERM", () => process.exit());
