/**
 * Progress of long work on stderr: one redrawn line on a terminal; elsewhere one line per step, except for
 * steps that count bytes.
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
}

/** Steps whose message is a result and stays on the terminal: chosen ports, and warnings. */
const lastingSteps: ReadonlySet<string> = new Set(["ports", "warning"]);

/** Shorter steps show no elapsed time. */
const elapsedFromMs = 2_000;

/** Milliseconds between redraws: bytes are counted faster than people read. */
const redrawMs = 100;

export class ProgressLine implements Disposable {
  readonly #host: Pick<CliHost, "stderr" | "now"> | undefined;
  readonly #label: string;
  /** By transfer, since there may be several at once. */
  readonly #rates = new Map<string, TransferRate>();
  #shown = "";
  #drawn = { step: "", atMs: 0 };
  /** The current step on a terminal, which is redrawn with its elapsed time. */
  #current: { readonly step: string; readonly startMs: number; text: string } | undefined;
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
      stderr.write(`${this.#label}: ${progressText(progress)}\n`);
    } else if (stderr.isTTY === true) this.#draw(progress, now);
    else if (progress.doneBytes === undefined && progress.step !== this.#shown) {
      this.#shown = progress.step;
      stderr.write(`${this.#label}: ${progressText(progress)}\n`);
    }
  }

  #draw(progress: ProgressStep, now: () => number): void {
    const atMs = now();
    const { step, doneBytes } = progress;
    const bytesPerSec = this.#rateOf(progress, atMs);
    const isSoon = step === this.#drawn.step && Math.abs(atMs - this.#drawn.atMs) < redrawMs;
    if (doneBytes !== undefined && isSoon) return;
    this.#drawn = { step, atMs };
    if (this.#current?.step !== step) this.#current = { step, startMs: atMs, text: "" };
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

  /** Erases the line, so that other output starts on an empty one. */
  clear(): void {
    if (this.#host?.stderr.isTTY === true && this.#shown !== "") this.#host.stderr.write("\r\x1b[K");
    this.#shown = "";
    this.#current = undefined;
  }

  [Symbol.dispose](): void {
    clearInterval(this.#clock);
    this.clear();
  }

  #rateOf({ step, message, doneBytes, totalBytes }: ProgressStep, atMs: number): number | undefined {
    if (doneBytes === undefined) return undefined;
    // Without a total, the message may itself count, so it cannot identify the transfer.
    const key = totalBytes === undefined ? step : `${step} ${message}`;
    const rate = this.#rates.get(key) ?? new TransferRate();
    this.#rates.set(key, rate);
    return rate.at(atMs, doneBytes);
  }
}

/** `copy 1.2 MiB of 3.4 MiB (35%) · 512 KiB/s · 4s left · data/` */
export function progressText(
  { step, message, doneBytes, totalBytes }: ProgressStep,
  bytesPerSec?: number,
): string {
  let text = escapeCell(step);
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
  return message === "" ? text : `${text} · ${escapeCell(message)}`;
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
