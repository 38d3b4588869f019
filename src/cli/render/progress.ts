/** The progress of long work on stderr: one line redrawn on a terminal; elsewhere a line per step, but for those that count bytes. */
import type { CliHost, OutputStream } from "../host.ts";
import { escapeCell } from "./escape.ts";
import { TransferRate } from "./transfer-rate.ts";
import { formatBytes, formatDuration } from "./units.ts";
import { columnsOf, truncate } from "./width.ts";

export interface ProgressStep {
  /** The step it is in, a word such as `fetch`. */
  readonly step: string;
  /** What happens in it, or what it printed last; empty for none. */
  readonly message: string;
  readonly doneBytes?: number | undefined;
  readonly totalBytes?: number | undefined;
}

/** Bytes are counted faster than people read. */
const redrawMs = 100;

export class ProgressLine implements Disposable {
  readonly #host: Pick<CliHost, "stderr" | "now"> | undefined;
  readonly #label: string;
  /** By what is transferred: there may be several at once. */
  readonly #rates = new Map<string, TransferRate>();
  #shown = "";
  #drawn = { step: "", atMs: 0 };

  /** @param host absent: nothing is shown @param label what the work is about, such as `install hello` */
  constructor(host: Pick<CliHost, "stderr" | "now"> | undefined, label: string) {
    this.#host = host;
    this.#label = escapeCell(label);
  }

  update(progress: ProgressStep): void {
    if (this.#host === undefined) return;
    const { stderr, now } = this.#host;
    if (stderr.isTTY === true) this.#draw(progress, stderr, now());
    else if (progress.doneBytes === undefined && progress.step !== this.#shown) {
      this.#shown = progress.step;
      stderr.write(`${this.#label}: ${progressText(progress)}\n`);
    }
  }

  #draw(progress: ProgressStep, stderr: OutputStream, atMs: number): void {
    const { step, doneBytes } = progress;
    const bytesPerSec = this.#rateOf(progress, atMs);
    const isSoon = step === this.#drawn.step && Math.abs(atMs - this.#drawn.atMs) < redrawMs;
    if (doneBytes !== undefined && isSoon) return;
    const text = `${this.#label}: ${progressText(progress, bytesPerSec)}`;
    if (text === this.#shown) return;
    this.#shown = text;
    this.#drawn = { step, atMs };
    // One column stays free: terminals wrap when the last is written.
    stderr.write(`\r\x1b[K${truncate(text, columnsOf(stderr) - 1)}`);
  }

  /** Takes the line away; what comes next starts on a clean one. */
  clear(): void {
    if (this.#host?.stderr.isTTY === true && this.#shown !== "") this.#host.stderr.write("\r\x1b[K");
    this.#shown = "";
  }

  [Symbol.dispose](): void {
    this.clear();
  }

  #rateOf({ step, message, doneBytes, totalBytes }: ProgressStep, atMs: number): number | undefined {
    if (doneBytes === undefined) return undefined;
    // Where the total is not known, the message may count, too.
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
