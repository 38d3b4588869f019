/** The progress of long work on stderr: one line redrawn on a terminal, a line per step elsewhere. */
import type { OutputStream } from "../host.ts";
import { escapeCell } from "./escape.ts";
import { formatBytes } from "./units.ts";
import { truncate } from "./width.ts";

export interface ProgressStep {
  /** The step it is in, a word such as `fetch`. */
  readonly step: string;
  /** What happens in it, or what it printed last; empty for none. */
  readonly message: string;
  readonly doneBytes?: number | undefined;
  readonly totalBytes?: number | undefined;
}

export class ProgressLine {
  readonly #output: OutputStream;
  readonly #label: string;
  #shown = "";

  /** @param label what the work is about, such as `install hello` */
  constructor(output: OutputStream, label: string) {
    this.#output = output;
    this.#label = escapeCell(label);
  }

  update(progress: ProgressStep): void {
    if (this.#output.isTTY === true) {
      const text = `${this.#label}: ${progressText(progress)}`;
      if (text === this.#shown) return;
      this.#shown = text;
      // One column stays free: terminals wrap when the last is written.
      this.#output.write(`\r\x1b[K${truncate(text, (this.#output.columns ?? 80) - 1)}`);
    } else if (progress.step !== this.#shown) {
      this.#shown = progress.step;
      this.#output.write(`${this.#label}: ${progressText(progress)}\n`);
    }
  }

  /** Takes the line away; what comes next starts on a clean one. */
  clear(): void {
    if (this.#output.isTTY === true && this.#shown !== "") this.#output.write("\r\x1b[K");
    this.#shown = "";
  }
}

/** `copy 1.2 MiB of 3.4 MiB (35%) · data/` */
export function progressText({ step, message, doneBytes, totalBytes }: ProgressStep): string {
  let text = escapeCell(step);
  if (doneBytes !== undefined) {
    text += ` ${formatBytes(doneBytes)}`;
    if (totalBytes !== undefined && totalBytes > 0) {
      const percent = Math.min(100, Math.floor((100 * doneBytes) / totalBytes));
      text += ` of ${formatBytes(totalBytes)} (${percent}%)`;
    }
  }
  return message === "" ? text : `${text} · ${escapeCell(message)}`;
}
