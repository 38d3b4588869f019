/**
 * A download over REST, compared with a file piped into a response of plain `node:http`: the same file from the page
 * cache, in turn. The file has no holes, because the kernel does not read those. Runs of the baseline differ by half
 * and more, depending on V8's handling of 16,000 short-lived buffers; hence the number of rounds.
 */
import { randomFillSync } from "node:crypto";
import { open } from "node:fs/promises";
import { join } from "node:path";
import { ChildServer } from "./support/child-server.ts";
import { compareCpuUs, sendRequests } from "./support/load.ts";
import type { Bench } from "./support/result.ts";
import { temporaryDirectory } from "./support/temporary-directory.ts";

const runs = 7;
const fileBytes = 1024 ** 3;
const blockBytes = 4 * 1024 ** 2;

export const bench: Bench = {
  name: "download",
  async run() {
    await using directory = await temporaryDirectory();
    const dir = directory.path;
    const file = join(dir, "file.bin");
    await writeFile(file);
    await using gateway = await ChildServer.start("gateway-server.ts", join(dir, "gateway.sock"), "1");
    await using bare = await ChildServer.start("bare-server.ts", join(dir, "bare.sock"), file, "stream");
    const path = `/v1/files/content?path=${encodeURIComponent(file)}`;
    const { measuredUs, yardstickUs } = await compareCpuUs(
      runs,
      1,
      { pid: gateway.pid, work: () => sendRequests(gateway, path, 1) },
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

async function writeFile(path: string): Promise<void> {
  const block = randomFillSync(Buffer.alloc(blockBytes));
  await using file = await open(path, "w");
  for (let written = 0; written < fileBytes; written += blockBytes) await file.write(block);
}
