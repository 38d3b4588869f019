/**
 * Random requests against a real daemon: it keeps running, returns only declared responses, and frees its memory.
 * Memory is measured on an idle daemon, after a garbage collection and the daemon's own release of freed memory. The
 * first figure is that of a daemon that has served thousands of such requests: what it loads and compiles for the first
 * of each kind stays and is not a leak; growth with the number of requests is.
 */
import { readFile } from "node:fs/promises";
import { setTimeout as wait } from "node:timers/promises";
import { fileURLToPath } from "node:url";
import { eventually } from "../support/eventually.ts";
import { startDaemon, type TestDaemon } from "../support/daemon.ts";
import { Exchange, type FuzzAnswer } from "./exchange.ts";
import { Random } from "./random.ts";
import { randomRequest, type FuzzRequest } from "./requests.ts";

export interface FuzzOptions {
  readonly count: number;
  readonly seed: number;
  /** Absent: memory is not measured. */
  readonly memory?: {
    /** Requests before it is measured for the first time. */
    readonly warmUp: number;
    /** How often it is measured during the run, including the end. */
    readonly rounds: number;
  };
}

export interface FuzzResult {
  /** The number of each response, such as `REST 404`. */
  readonly answers: ReadonlyMap<string, number>;
  /** Violations, at most twenty. */
  readonly failures: readonly string[];
  /** Memory beyond the first figure after each round. */
  readonly growth: readonly Growth[];
}

export interface Growth {
  /** Requests since the first figure. */
  readonly requests: number;
  readonly usedMiB: number;
  readonly residentMiB: number;
}

interface Memory {
  readonly usedMiB: number;
  readonly residentMiB: number;
}

const concurrency = 32;
const mib = 1024 * 1024;
const reportMemory = fileURLToPath(new URL("./report-memory.mjs", import.meta.url));

export async function fuzz({ count, seed, memory }: FuzzOptions): Promise<FuzzResult> {
  await using daemon = await startDaemon({
    // All requests share one client; the cost of a flood for it is another test.
    config: "[api.limits]\ntoken_failure_budget = 1000000\nreset_budget = 1000000\n",
    env: { NODE_OPTIONS: `--expose-gc --import ${reportMemory}` },
  });
  const answers = new Map<string, number>();
  const failures: string[] = [];
  const growth: Growth[] = [];
  const random = new Random(seed);
  if (memory === undefined) {
    await sendAll(daemon, random, count, answers, failures);
  } else {
    await sendAll(daemon, random, memory.warmUp, answers, failures);
    const before = await memoryOf(daemon);
    for (let round = 1, sent = 0; round <= memory.rounds; round++) {
      const requests = Math.round((count * round) / memory.rounds);
      await sendAll(daemon, random, requests - sent, answers, failures);
      sent = requests;
      const after = await memoryOf(daemon);
      growth.push({
        requests,
        usedMiB: after.usedMiB - before.usedMiB,
        residentMiB: after.residentMiB - before.residentMiB,
      });
    }
  }
  const unexpected = daemon.log().match(/.*unexpected error in.*/g) ?? [];
  return { answers, failures: [...failures, ...unexpected].slice(0, 20), growth };
}

async function sendAll(
  daemon: TestDaemon,
  random: Random,
  count: number,
  answers: Map<string, number>,
  failures: string[],
): Promise<void> {
  let left = count;
  const work = async (): Promise<void> => {
    using exchange = new Exchange({ host: "127.0.0.1", port: daemon.port });
    while (left > 0) {
      left--;
      const request = randomRequest(random, daemon.token);
      const answer = await exchange.send(request);
      const key = `${request.raw === undefined ? request.protocol : "raw"} ${answer.grpcStatus === undefined ? answer.status : `status ${answer.grpcStatus}`}`;
      answers.set(key, (answers.get(key) ?? 0) + 1);
      const problem = problemOf(request, answer);
      if (problem !== undefined && failures.length < 20)
        failures.push(`${problem}: ${shown(request, answer)}`);
    }
  };
  await Promise.all(Array.from({ length: concurrency }, work));
}

/** The server errors that the contract declares: not implemented, and currently unavailable. */
const declaredCodes = new Set(["unimplemented", "unavailable", "deadline_exceeded"]);
/** Their status in REST, where HEAD has no body. */
const declaredStatuses = new Set([501, 503, 504]);

/** The protocols prescribe `internal` for the flag of a compressed message without a named compression. */
const nameless = /a message is compressed, but the request declares no compression/;

function problemOf(request: FuzzRequest, answer: FuzzAnswer): string | undefined {
  if (nameless.test(answer.text) || nameless.test(decodeURIComponent(answer.grpcMessage))) return undefined;
  if (answer.isLate) return "no answer in time";
  if (request.kind === "valid" && answer.status === 0) return "no answer to a valid request";
  // unknown, internal, data_loss
  if (["2", "13", "15"].includes(answer.grpcStatus ?? "")) return `gRPC status ${answer.grpcStatus}`;
  if (/"code":"(?:internal|unknown|data_loss)"/.test(answer.text)) return "an internal error";
  if (answer.status < 500) return undefined;
  if (request.method === "HEAD" && declaredStatuses.has(answer.status)) return undefined;
  const code = /"code":\s*"([a-z_]+)"/.exec(answer.text)?.[1];
  return code !== undefined && declaredCodes.has(code) ? undefined : `HTTP status ${answer.status}`;
}

function shown({ raw, http, method, path, headers, body }: FuzzRequest, answer: FuzzAnswer): string {
  const sent =
    raw === undefined
      ? `HTTP/${http} ${method} ${path} ${JSON.stringify(headers)} ${body.subarray(0, 200).toString("base64")}`
      : raw.toString("base64");
  return `${sent.replaceAll(/Bearer svcp_[\w-]+/g, "Bearer …")} → ${answer.grpcMessage}${answer.text.slice(0, 300)}`;
}

/** After a collection, and after idle connections were closed. */
async function memoryOf(daemon: TestDaemon): Promise<Memory> {
  await wait(1_000);
  const seen = linesOf(daemon).length;
  process.kill(daemon.pid, "SIGUSR2");
  const line = await eventually(() => {
    const lines = linesOf(daemon);
    if (lines.length === seen) throw new Error("the daemon does not report its memory; does it still run?");
    return lines.at(-1) ?? "";
  });
  const { used } = JSON.parse(line) as { used: number };
  return { usedMiB: used / mib, residentMiB: await leastResidentMiB(daemon) };
}

/** Two intervals of the daemon's memory release, and a little more. */
const releaseMs = 12_000;

async function leastResidentMiB({ pid }: TestDaemon): Promise<number> {
  let least = Number.POSITIVE_INFINITY;
  for (let waitedMs = 0; waitedMs < releaseMs; waitedMs += 500) {
    await wait(500);
    const status = await readFile(`/proc/${pid}/status`, "utf8");
    least = Math.min(least, Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) / 1024);
  }
  return least;
}

function linesOf(daemon: TestDaemon): string[] {
  return daemon.log().match(/\{"msg":"memory".*\}/g) ?? [];
}
