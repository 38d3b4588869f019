/** An app's log, line by line. */
import { signal, type ReadonlySignal } from "@preact/signals";
import { describeError, type Api } from "./api.ts";
import { connectConsole, type ConsoleSaid } from "./console-connection.ts";
import { plainLine } from "./plain-text.ts";
import { texts } from "./texts.ts";
import { formatBytes } from "./units.ts";

/** Lines in a block: what is shown of a log grows block by block, and a block that is full stays as it is. */
export const linesPerBlock = 100;
const maxBlocks = 100;

export interface LogBlock {
  /** Counts up, for as long as the log is open. */
  readonly number: number;
  readonly lines: readonly string[];
}

export class LogLines {
  readonly #blocks = signal<readonly LogBlock[]>([]);
  readonly blocks: ReadonlySignal<readonly LogBlock[]> = this.#blocks;
  readonly #end = signal<string | undefined>(undefined);
  /** Why no more comes: undefined while more may come. */
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
    const hears = {
      data: (bytes: Uint8Array) => this.#print(this.#decoder.decode(bytes, { stream: true })),
      said: (said: ConsoleSaid) => this.#hear(said),
      closed: () => void (this.#end.value ??= texts.log.ended),
    };
    await connectConsole(api, appId, { session: "logs" }, hears, this.#over.signal);
  }

  #hear(said: ConsoleSaid): void {
    if (said.type === "gap") this.#print(`\n${texts.log.left(formatBytes(said.bytes))}\n`);
    else if (said.type === "error") this.#end.value = said.error;
  }

  #print(text: string): void {
    const lines = (this.#rest + text).split("\n");
    this.#rest = lines.pop() ?? "";
    if (lines.length === 0) return;
    // A flood is shown once a frame.
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
