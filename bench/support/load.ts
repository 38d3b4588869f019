/** Requests over a few persistent connections, and their cost for the server. */
import { once } from "node:events";
import { readdir, readFile } from "node:fs/promises";
import { request, type IncomingMessage } from "node:http";
import { connect, type Socket } from "node:net";
import { text } from "node:stream/consumers";
import { median } from "./statistics.ts";

/** Enough to keep a server busy. */
const connections = 4;

export interface Target {
  /** Path of its unix socket. */
  socket: string;
  pid: number;
}

/** Sends `count` times `GET path` and reads every response. @throws Error if one is not a 200 */
export async function sendRequests({ socket }: Target, path: string, count: number): Promise<void> {
  const bytes = Buffer.from(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  const share = Math.ceil(count / connections);
  await Promise.all(
    Array.from({ length: Math.min(connections, count) }, () => sendOverOne(connect(socket), bytes, share)),
  );
}

/** The body of one response. */
export async function getOnce({ socket }: Target, path: string): Promise<string> {
  const sent = request({ socketPath: socket, path }).end();
  const [response] = (await once(sent, "response")) as [IncomingMessage];
  return text(response);
}

function sendOverOne(socket: Socket, question: Buffer, count: number): Promise<void> {
  return new Promise((resolve, reject) => {
    let left = count;
    /** The number of response bytes to come; the head counts as unknown. */
    let missing: number | undefined;
    let head = "";
    socket.on("error", reject);
    socket.on("connect", () => socket.write(question));
    socket.on("data", (chunk) => {
      if (missing === undefined) {
        head += chunk.toString("latin1");
        const end = head.indexOf("\r\n\r\n");
        if (end < 0) return;
        const length = /\r\ncontent-length: (\d+)/i.exec(head)?.[1];
        const isChunked = /\r\ntransfer-encoding: chunked/i.test(head);
        if (!head.startsWith("HTTP/1.1 200 ") || (length === undefined && !isChunked)) {
          reject(new Error(`unexpected response: ${head.slice(0, 200)}`));
          socket.destroy();
          return;
        }
        if (isChunked) {
          // No JSON contains a line break like that.
          if (!head.endsWith("\r\n0\r\n\r\n")) return;
          missing = 0;
        } else missing = Number(length) - (head.length - end - 4);
      } else {
        missing -= chunk.length;
      }
      if (missing > 0) return;
      missing = undefined;
      head = "";
      left -= 1;
      if (left > 0) {
        socket.write(question);
      } else {
        socket.end();
        resolve();
      }
    });
  });
}

/** A process's CPU time so far, including exited threads, in steps of 10 ms: for long work. */
export async function wholeCpuMs(pid: number): Promise<number> {
  const stat = await readFile(`/proc/${pid}/stat`, "utf8");
  // After the name, which may contain anything: utime and stime of proc(5), in hundredths of a second.
  const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
  return (Number(fields[11]) + Number(fields[12])) * 10;
}

/** The CPU time so far of all running threads of a process, in microseconds. */
export async function cpuUs(pid: number): Promise<number> {
  return [...(await threadsUs(pid)).values()].reduce((sum, spent) => sum + spent, 0);
}

/** The same for each running thread by its ID: an exited one is missing. */
export async function threadsUs(pid: number): Promise<ReadonlyMap<string, number>> {
  const tasks = await readdir(`/proc/${pid}/task`);
  const spent = tasks.map(async (task): Promise<[string, number]> => {
    const line = await readFile(`/proc/${pid}/task/${task}/schedstat`, "utf8").catch(() => "0");
    return [task, Number(line.split(" ", 1)[0]) / 1_000];
  });
  return new Map(await Promise.all(spent));
}

/**
 * The cost of `work` for two servers, in turn: CPU time, which does not depend on other load. @param count the number
 * of requests of one `work` @returns the medians of `rounds` runs each, in microseconds per request; the first round of
 * each does not count
 */
export async function compareCpuUs(
  rounds: number,
  count: number,
  measured: { pid: number; work: () => Promise<unknown> },
  yardstick: { pid: number; work: () => Promise<unknown> },
): Promise<{ measuredUs: number; yardstickUs: number }> {
  const costs = { measured: [] as number[], yardstick: [] as number[] };
  const cost = async ({ pid, work }: typeof measured): Promise<number> => {
    const before = await cpuUs(pid);
    await work();
    return ((await cpuUs(pid)) - before) / count;
  };
  for (let round = -1; round < rounds; round += 1) {
    const [measuredUs, yardstickUs] = [await cost(measured), await cost(yardstick)];
    if (round < 0) continue;
    costs.measured.push(measuredUs);
    costs.yardstick.push(yardstickUs);
  }
  return { measuredUs: median(costs.measured), yardstickUs: median(costs.yardstick) };
}
