/**
 * A shell over a WebSocket: 50 MB of `cat` to a fast client compared with `script`, ^C during `yes` at a client with a
 * terminal's speed, and keystroke to echo while another console floods. `SVC_BENCH_TINY=1` runs it with little data.
 */
import { spawn } from "node:child_process";
import { randomFillSync } from "node:crypto";
import { once } from "node:events";
import { appendFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { setTimeout as sleep } from "node:timers/promises";
import WebSocket from "ws";
import { startDaemon, type BenchDaemon } from "./support/daemon.ts";
import type { Bench } from "./support/result.ts";
import { percentile } from "./support/statistics.ts";

const isTiny = process.env["SVC_BENCH_TINY"] === "1";
const runs = isTiny ? 2 : 7;
const fileBytes = isTiny ? 2_000_000 : 50_000_000;
const keystrokes = isTiny ? 50 : 1_000;
/** The output that a terminal in a page shows per millisecond. */
const shownBytesPerMs = 2_500;

export const bench: Bench = {
  name: "console",
  async run() {
    await using daemon = await startDaemon();
    const dir = await daemon.writePackage("shell", "setInterval(() => undefined, 1000);");
    // Not the user's own shell, which may run much at its start.
    await appendFile(join(dir, "svc.yaml"), "console: { exec: [sh, -i] }\n");
    await daemon.svc("install", dir);
    const file = join(daemon.dir, "lines.txt");
    await writeFile(file, linesOf(fileBytes));
    const [cats, scripts]: [number[], number[]] = [[], []];
    for (let run = 0; run < runs; run++) {
      cats.push(await catMs(daemon, file));
      scripts.push(await scriptMs(file));
    }
    const interrupts: number[] = [];
    for (let run = 0; run < runs; run++) interrupts.push(await interruptMs(daemon));
    const echoes = await echoMs(daemon);
    const [cat, script, interrupt] = [Math.min(...cats), Math.min(...scripts), Math.max(...interrupts)];
    const p99 = percentile(echoes, 0.99);
    return [
      {
        what: `\`cat\` of ${fileBytes / 1e6} MB through a console`,
        measured: `${cat.toFixed(0)} ms`,
        yardstick: `\`script -qc cat\` ${script.toFixed(0)} ms`,
        value: script / cat,
        goal: 1,
        isFloor: true,
        unit: "×",
        runs,
      },
      {
        what: "^C during `yes`, at a client that shows 2.5 MB/s",
        measured: `${interrupt.toFixed(0)} ms at most`,
        yardstick: "150 ms",
        value: interrupt,
        goal: 150,
        unit: "ms",
        runs,
      },
      {
        what: "keystroke to echo while another console floods, p99",
        measured: `${p99.toFixed(1)} ms`,
        yardstick: "10 ms",
        value: p99,
        goal: 10,
        unit: "ms",
        runs: keystrokes,
      },
    ];
  },
};

function linesOf(bytes: number): Buffer {
  const text = randomFillSync(Buffer.alloc(bytes)).map((byte) => 33 + (byte % 90));
  for (let at = 99; at < bytes; at += 100) text[at] = 10;
  return Buffer.from(text);
}

interface Shell extends Disposable {
  readonly socket: WebSocket;
  /** Resolves when the text has appeared since the call. */
  until(text: string): Promise<void>;
  type(text: string): void;
}

/** @param paceBytesPerMs the client's speed; absent: unlimited */
async function openShell(daemon: BenchDaemon, paceBytesPerMs?: number): Promise<Shell> {
  const body = JSON.stringify({ app_id: "shell", session: "attach" });
  const answer = await daemon.svc("api", "AppService.IssueConsoleToken", body);
  const { token } = JSON.parse(answer) as { token: string };
  const path = `/v1/apps/shell/console?session=attach&token=${token}`;
  const socket = new WebSocket(`ws+unix:${daemon.socket}:${path}`);
  let [tail, received, shown, wanted, foundAt] = ["", 0, 0, "", Infinity];
  let found = Promise.withResolvers<undefined>();
  socket.on("message", (data: Buffer, isBinary) => {
    if (!isBinary) return;
    received += data.length;
    tail = (tail + data.subarray(-4_096).toString("latin1")).slice(-8_192);
    if (wanted === "" || !tail.includes(wanted)) return;
    if (paceBytesPerMs === undefined) found.resolve(undefined);
    else foundAt = Math.min(foundAt, received);
  });
  await once(socket, "open");
  const say = (message: object): void => socket.send(JSON.stringify(message));
  const pace = setInterval(() => {
    // Only the connection limits a fast client.
    if (paceBytesPerMs === undefined) return;
    shown = Math.min(received, shown + paceBytesPerMs * 5);
    if (shown > 0) say({ type: "ack", bytes: shown });
    if (shown >= foundAt) found.resolve(undefined);
  }, 5);
  const type = (text: string): void => socket.send(Buffer.from(text));
  const until = async (text: string): Promise<void> => {
    [tail, wanted, foundAt, found] = ["", text, Infinity, Promise.withResolvers()];
    await found.promise;
  };
  const ready = until("ready-2");
  type("PS1=; stty -echo; echo ready-$((1+1))\n");
  await ready;
  const dispose = (): void => {
    clearInterval(pace);
    socket.terminate();
  };
  return { socket, until, type, [Symbol.dispose]: dispose };
}

async function catMs(daemon: BenchDaemon, file: string): Promise<number> {
  using shell = await openShell(daemon);
  const began = performance.now();
  const ended = shell.until("the-end-2");
  shell.type(`cat ${file}; echo the-end-$((1+1))\n`);
  await ended;
  return performance.now() - began;
}

async function scriptMs(file: string): Promise<number> {
  const began = performance.now();
  const child = spawn("script", ["-qec", `cat ${file}`, "/dev/null"], {
    stdio: ["ignore", "pipe", "inherit"],
  });
  child.stdout.resume();
  await once(child, "close");
  return performance.now() - began;
}

async function interruptMs(daemon: BenchDaemon): Promise<number> {
  using shell = await openShell(daemon, shownBytesPerMs);
  shell.type("yes\n");
  await sleep(isTiny ? 300 : 1_500);
  const began = performance.now();
  const ended = shell.until("the-end-2");
  shell.type("\x03echo the-end-$((1+1))\n");
  await ended;
  return performance.now() - began;
}

async function echoMs(daemon: BenchDaemon): Promise<number[]> {
  using flood = await openShell(daemon, shownBytesPerMs);
  flood.type("yes\n");
  using shell = await openShell(daemon);
  shell.type("stty echo raw; exec cat >/dev/null\n");
  await sleep(200);
  const times: number[] = [];
  for (let stroke = 0; stroke < keystrokes; stroke++) {
    const key = String.fromCharCode(97 + (stroke % 26));
    const began = performance.now();
    const shown = shell.until(key);
    shell.type(key);
    await shown;
    times.push(performance.now() - began);
    await sleep(5);
  }
  return times;
}
