/** The cost of a unary call over Connect and gRPC, compared with plain connect-node. */
import { join } from "node:path";
import { createClient } from "@connectrpc/connect";
import { DaemonService } from "../gen/svc/v1/daemon_pb.ts";
import { socketTransport } from "../test/support/daemon.ts";
import { ChildServer } from "./support/child-server.ts";
import { compareCpuUs } from "./support/load.ts";
import { amount, type Bench, type Result } from "./support/result.ts";
import { temporaryDirectory } from "./support/temporary-directory.ts";

const runs = 9;
const calls = 600;
/** Rounds of calls to both before anything counts, so that both have compiled their code. */
const warmUpRounds = 5;
const atOnce = 4;
const protocols = [
  { protocol: "grpc", name: "gRPC", httpVersion: "2" },
  { protocol: "connect", name: "Connect", httpVersion: "1" },
] as const;

export const bench: Bench = {
  name: "unary",
  async run() {
    await using directory = await temporaryDirectory();
    const dir = directory.path;
    await using gateway = await ChildServer.start("gateway-server.ts", join(dir, "gateway.sock"), "1");
    const results: Result[] = [];
    for (const { protocol, name, httpVersion } of protocols) {
      await using bare = await ChildServer.start(
        "bare-connect.ts",
        join(dir, `bare-${httpVersion}.sock`),
        httpVersion,
      );
      const [callGateway, callBare] = [caller(gateway.socket, protocol), caller(bare.socket, protocol)];
      for (let round = 0; round < warmUpRounds; round += 1) {
        await callGateway();
        await callBare();
      }
      const { measuredUs, yardstickUs } = await compareCpuUs(
        runs,
        calls,
        { pid: gateway.pid, work: callGateway },
        { pid: bare.pid, work: callBare },
      );
      results.push({
        what: `${name} unary call through the request gateway and the pipeline`,
        measured: `${amount(measuredUs, "µs")} of processor time`,
        yardstick: `bare connect-node ${amount(yardstickUs, "µs")}`,
        value: yardstickUs / measuredUs,
        goal: 1,
        isFloor: true,
        unit: "×",
        runs,
      });
    }
    return results;
  },
};

function caller(socket: string, protocol: "grpc" | "connect"): () => Promise<void> {
  const client = createClient(DaemonService, socketTransport(socket, protocol));
  return async () => {
    const share = async (): Promise<void> => {
      for (let call = 0; call < calls / atOnce; call += 1) await client.getStatus({});
    };
    await Promise.all(Array.from({ length: atOnce }, share));
  };
}
