/** A download through the REST front, against a file piped into a response of bare `node:http`. */
import { join } from "node:path";
import { ChildServer } from "./support/child-server.ts";
import { compareCpuUs, sendRequests } from "./support/load.ts";
import { runProgram } from "./support/processes.ts";
import type { Bench } from "./support/result.ts";
import { temporaryDirectory } from "./support/temporary-directory.ts";

const runs = 3;
const fileBytes = 1024 ** 3;

export const bench: Bench = {
  name: "download",
  async run() {
    await using directory = await temporaryDirectory();
    const dir = directory.path;
    const file = join(dir, "file.bin");
    await runProgram("truncate", "-s", String(fileBytes), file);
    await using door = await ChildServer.start("door-server.ts", join(dir, "door.sock"), "1");
    await using bare = await ChildServer.start("bare-server.ts", join(dir, "bare.sock"), file, "stream");
    const path = `/v1/files/content?path=${encodeURIComponent(file)}`;
    const { measuredUs, yardstickUs } = await compareCpuUs(
      runs,
      1,
      { pid: door.pid, work: () => sendRequests(door, path, 1) },
      { pid: bare.pid, work: () => sendRequests(bare, path, 1) },
    );
    return [
      {
        what: "download of 1 GiB over REST",
        measured: `${(measuredUs / 1000).toFixed(0)} ms of processor time`,
        yardstick: `\`fs.createReadStream\` piped by \`node:http\` ${(yardstickUs / 1000).toFixed(0)} ms`,
        value: yardstickUs / measuredUs,
        goal: 0.9,
        isFloor: true,
        unit: "×",
        runs,
      },
    ];
  },
};
