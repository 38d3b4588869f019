/**
 * Progress of long work on stderr. On a terminal each step has a line, which is redrawn; the lines of numbered steps
 * stay, except for short ones. Elsewhere each step prints one line when it starts, and one more for each service.
 */
import type { CliHost } from "../host.ts";
import { escapeCell } from "./escape.ts";
import { formatBytes, formatDuration } from "./units.ts";
import { columnsOf, truncate } from "./width.ts";

export interface ProgressStep {
  /** The current step, such as `fetch`. */
  readonly step: string;
  /** A detail of the step, or its last output; empty for none. */
  readonly message: string;
  readonly doneBytes?: number | undefined;
  readonly totalBytes?: number | undefined;
  /** From 1; absent for messages outside the steps. */
  readonly stepNumber?: number | undefined;
  /** Absent while unknown. */
  readonly stepCount?: number | undefined;
  /** The compose service that the step is about. */
  readonly service?: string | undefined;
}

/** Steps whose message is a result and stays on the terminal: chosen ports, and warnings. */
const lastingSteps: ReadonlySet<string> = new Set(["ports", "warning"]);

/** Shorter steps show no elapsed time, and their lines do not stay. */
const elapsedFromMs = 2_000;

/** Milliseconds between redraws: bytes are counted faster than people read. */
const redrawMs = 100;

export class ProgressLine implements Disposable {
  readonly #host: Pick<CliHost, "stderr" | "now"> | undefined;
  readonly #label: string;
  /** By transfer, since there may be several at once. */
  readonly #rates = new Map<string, TransferRate>();
  #shown = "";
  #drawn = { key: "", atMs: 0 };
  /** The line on a terminal, which is redrawn with its elapsed time. */
  #current:
    | { readonly key: string; readonly isNumbered: boolean; readonly startMs: number; text: string }
    | undefined;
  /** Steps that were printed without a terminal. */
  readonly #printed = new Set<string>();
  #clock: NodeJS.Timeout | undefined;

  /** @param host absent: show nothing @param label what the work is about, such as `install hello` */
  constructor(host: Pick<CliHost, "stderr" | "now"> | undefined, label: string) {
    this.#host = host;
    this.#label = escapeCell(label);
  }

  update(progress: ProgressStep): void {
    if (this.#host === undefined) return;
    const { stderr, now } = this.#host;
    if (lastingSteps.has(progress.step)) {
      this.clear();
      const { step, message } = progress;
      const level = step === "warning" ? "warning: " : "";
      stderr.write(`${this.#label}: ${level}${escapeCell(message)}\n`);
    } else if (stderr.isTTY === true) this.#draw(progress, now);
    else this.#print(progress, stderr);
  }

  /** Bytes of a transfer without a number are not worth a line in a log. */
  #print(progress: ProgressStep, stderr: CliHost["stderr"]): void {
    const { doneBytes, stepNumber, service = "" } = progress;
    if (doneBytes !== undefined && stepNumber === undefined) return;
    const key = `${lineKey(progress)} ${service}`;
    if (this.#printed.has(key)) return;
    this.#printed.add(key);
    stderr.write(`${this.#label}: ${progressText({ ...progress, doneBytes: undefined })}\n`);
  }

  #draw(progress: ProgressStep, now: () => number): void {
    const atMs = now();
    const key = lineKey(progress);
    const bytesPerSec = this.#rateOf(progress, atMs);
    const isSoon = key === this.#drawn.key && Math.abs(atMs - this.#drawn.atMs) < redrawMs;
    if (progress.doneBytes !== undefined && isSoon) return;
    this.#drawn = { key, atMs };
    if (this.#current?.key !== key) {
      this.#finishLine();
      this.#current = { key, isNumbered: progress.stepNumber !== undefined, startMs: atMs, text: "" };
    }
    this.#current.text = `${this.#label}: ${progressText(progress, bytesPerSec)}`;
    this.#clock ??= setInterval(() => this.#redraw(now()), 1000).unref();
    this.#redraw(atMs);
  }

  #redraw(atMs: number): void {
    if (this.#host === undefined || this.#current === undefined) return;
    const { stderr } = this.#host;
    const { text, startMs } = this.#current;
    const tookMs = atMs - startMs;
    const elapsed = tookMs < elapsedFromMs ? "" : ` · ${formatDuration(tookMs)}`;
    // One column stays free: terminals wrap after the last one.
    const line = `${truncate(text, columnsOf(stderr) - 1 - elapsed.length)}${elapsed}`;
    if (line === this.#shown) return;
    this.#shown = line;
    stderr.write(`\r\x1b[K${line}`);
  }

  /** Keeps the line of a numbered step on the terminal if the step took long. */
  #finishLine(): void {
    if (this.#host === undefined || this.#current?.isNumbered !== true) return;
    const atMs = this.#host.now();
    if (atMs - this.#current.startMs < elapsedFromMs) return;
    this.#redraw(atMs);
    this.#host.stderr.write("\n");
    this.#shown = "";
  }

  /** Ends or erases the line, so that other output starts on an empty one. */
  clear(): void {
    this.#finishLine();
    if (this.#host?.stderr.isTTY === true && this.#shown !== "") this.#host.stderr.write("\r\x1b[K");
    this.#shown = "";
    this.#current = undefined;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#clock);
    this.clear();
  }

  #rateOf(progress: ProgressStep, atMs: number): number | undefined {
    const { step, message, doneBytes, totalBytes, service = "" } = progress;
    if (doneBytes === undefined) return undefined;
    // Without a total, the message may itself count, so it cannot identify the transfer.
    const key = `${step} ${service} ${totalBytes === undefined ? "" : message}`;
    const rate = this.#rates.get(key) ?? new TransferRate();
    this.#rates.set(key, rate);
    return rate.at(atMs, doneBytes);
  }
}

/** Progress with the same key shares a line. */
function lineKey({ step, stepNumber }: ProgressStep): string {
  return stepNumber === undefined ? step : `${stepNumber}`;
}

/** Texts of steps, by their name in the contract. Other steps are shown by name. */
const stepTexts: Readonly<Record<string, string>> = {
  resolve: "Reading",
  fetch: "Fetching",
  export: "Unpacking",
  build: "Building",
  pull: "Pulling",
  copy: "Copying",
  backup: "Backing up",
  dump: "Dumping data",
  read: "Reading",
  encrypt: "Encrypting",
  push: "Storing",
  after: "Cleaning up",
  restore: "Restoring",
  verify: "Verifying",
  migrate: "Migrating data",
  stop: "Stopping",
  start: "Starting",
  trial: "Starting",
  health: "Waiting",
  wait: "Waiting",
  send: "Sending",
  receive: "Receiving",
};

/** `[1/2] Copying 1.2 MiB of 3.4 MiB (35%) · 512 KiB/s · 4s left · data/` */
export function progressText(
  { step, message, doneBytes, totalBytes, stepNumber, stepCount, service = "" }: ProgressStep,
  bytesPerSec?: number,
): string {
  const name = stepTexts[step] ?? step;
  // Most first messages are titles, such as `Fetching v1.2.0 of https://…`.
  const isTitle = message.startsWith(`${name} `);
  let text = `${numberText(stepNumber, stepCount)}${escapeCell(isTitle ? message : name)}`;
  if (service !== "") text += ` · ${escapeCell(service)}`;
  if (doneBytes !== undefined) {
    text += ` ${formatBytes(doneBytes)}`;
    if (totalBytes !== undefined && totalBytes > 0) {
      const percent = Math.min(100, Math.floor((100 * doneBytes) / totalBytes));
      text += ` of ${formatBytes(totalBytes)} (${percent}%)`;
    }
    if (bytesPerSec !== undefined) text += ` · ${formatBytes(bytesPerSec)}/s`;
    if (bytesPerSec !== undefined && bytesPerSec > 0 && totalBytes !== undefined && totalBytes > doneBytes) {
      text += ` · ${formatDuration((1000 * (totalBytes - doneBytes)) / bytesPerSec)} left`;
    }
  }
  return message === "" || isTitle ? text : `${text} · ${escapeCell(message)}`;
}

function numberText(number: number | undefined, count: number | undefined): string {
  if (number === undefined || count === 1) return "";
  return count === undefined ? `[${number}] ` : `[${number}/${count}] `;
}

/** Milliseconds. Older samples do not count, so that the rate is current. */
const windowMs = 10_000;
const samplesEveryMs = 500;
/** Milliseconds. Over a shorter time the rate is meaningless. */
const leastMs = 1000;

/** The recent speed of a transfer. */
export class TransferRate {
  #samples: { readonly atMs: number; readonly doneBytes: number }[] = [];

  /**
   * @param doneBytes bytes so far; a smaller number than before starts a new transfer
   * @returns bytes per second, once known
   */
  at(atMs: number, doneBytes: number): number | undefined {
    const last = this.#samples.at(-1);
    if (last === undefined || doneBytes < last.doneBytes) this.#samples = [{ atMs, doneBytes }];
    else if (atMs - last.atMs >= samplesEveryMs) this.#samples.push({ atMs, doneBytes });
    while ((this.#samples[1]?.atMs ?? atMs) < atMs - windowMs) this.#samples.shift();
    const [first = { atMs, doneBytes }] = this.#samples;
    const elapsedMs = atMs - first.atMs;
    return elapsedMs < leastMs ? undefined : (1000 * (doneBytes - first.doneBytes)) / elapsedMs;
  }
}
