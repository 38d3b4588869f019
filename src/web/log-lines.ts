/** An app's log as blocks of lines. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { describeError, type Api } from "./api.ts";
import { connectConsole, type ConsoleMessage } from "./console-connection.ts";
import { plainLine } from "./plain-text.ts";
import { texts } from "./texts.ts";
import { formatBytes } from "./units.ts";

/** Lines per block. Full blocks never change, so only the last block is rendered again. */
export const linesPerBlock = 100;
const maxBlocks = 100;

export interface LogBlock {
  /** Increases while the log is open. */
  readonly number: number;
  readonly lines: readonly string[];
}

export class LogLines {
  readonly #blocks = signal<readonly LogBlock[]>([]);
  readonly blocks: ReadonlySignal<readonly LogBlock[]> = this.#blocks;
  readonly #end = signal<string | undefined>(undefined);
  /** Why the log has ended; undefined while it continues. */
  readonly end: ReadonlySignal<string | undefined> = this.#end;
  readonly #decoder = new TextDecoder();
  readonly #over = new AbortController();
  #rest = "";
  #waiting: string[] = [];

  constructor(api: Api, appId: string) {
    this.#open(api, appId).catch((error: unknown) => {
      if (!this.#over.signal.aborted) this.#end.value = describeError(error);
    });
  }

  close(): void {
    this.#over.abort();
  }

  async #open(api: Api, appId: string): Promise<void> {
    const handlers = {
      data: (bytes: Uint8Array) => this.#print(this.#decoder.decode(bytes, { stream: true })),
      notice: (notice: ConsoleMessage) => this.#onMessage(notice),
      closed: () => void (this.#end.value ??= texts.log.ended),
    };
    await connectConsole(api, appId, { session: "logs" }, handlers, this.#over.signal);
  }

  #onMessage(notice: ConsoleMessage): void {
    if (notice.type === "gap") this.#print(`\n${texts.log.left(formatBytes(notice.bytes))}\n`);
    else if (notice.type === "error") this.#end.value = notice.error;
  }

  #print(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    if (lines.length === 0) return;
    // Many lines are rendered together, once per frame.
    if (this.#waiting.length === 0) requestAnimationFrame(() => this.#flush());
    for (const line of lines) this.#waiting.push(plainLine(line));
    const most = linesPerBlock * maxBlocks;
    if (this.#waiting.length > 2 * most) this.#waiting = this.#waiting.slice(-most);
  }

  #flush(): void {
    const blocks = [...this.#blocks.value];
    for (let lines = this.#waiting; lines.length > 0;) {
      const last = blocks.at(-1);
      const isFull = last === undefined || last.lines.length >= linesPerBlock;
      const begun = isFull ? [] : last.lines;
      const taken = lines.slice(0, linesPerBlock - begun.length);
      const block = {
        number: last === undefined ? 0 : last.number + Number(isFull),
        lines: [...begun, ...taken],
      };
      if (isFull) blocks.push(block);
      else blocks[blocks.length - 1] = block;
      lines = lines.slice(taken.length);
    }
    this.#waiting = [];
    this.#blocks.value = blocks.slice(-maxBlocks);
  }
}
