/** An app's log over a WebSocket, which takes none of the few connections that a browser has for everything else. */
import { signal, type ReadonlySignal } from "@preact/signals";
import type { Api } from "./api.ts";
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

type Said =
  | { readonly type: "opened" | "exit" }
  | { readonly type: "gap"; readonly bytes: number }
  | { readonly type: "error"; readonly error: string };

export class LogLines {
  readonly #blocks = signal<readonly LogBlock[]>([]);
  /** Why no more comes: undefined while more may come. */
  readonly #end = signal<string | undefined>(undefined);
  readonly #decoder = new TextDecoder();
  #socket: WebSocket | undefined;
  #isClosed = false;
  #rest = "";
  #waiting: string[] = [];

  constructor(api: Api, appId: string, describe: (error: unknown) => string) {
    this.#open(api, appId).catch((error: unknown) => (this.#end.value = describe(error)));
  }

  get blocks(): ReadonlySignal<readonly LogBlock[]> {
    return this.#blocks;
  }

  get end(): ReadonlySignal<string | undefined> {
    return this.#end;
  }

  close(): void {
    this.#isClosed = true;
    this.#socket?.close();
  }

  async #open(api: Api, appId: string): Promise<void> {
    const { token } = await api.apps.issueConsoleToken({ appId, session: "logs" });
    if (this.#isClosed) return;
    const url = new URL(`/v1/apps/${encodeURIComponent(appId)}/console?session=logs`, location.origin);
    url.protocol = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url, ["svc.console.v1", `svc.token.${token}`]);
    this.#socket = socket;
    socket.binaryType = "arraybuffer";
    socket.addEventListener("message", ({ data }: MessageEvent<string | ArrayBuffer>) => {
      if (typeof data === "string") this.#hear(JSON.parse(data) as Said);
      else this.#print(this.#decoder.decode(data, { stream: true }));
    });
    socket.addEventListener("close", () => {
      if (!this.#isClosed) this.#end.value ??= texts.log.ended;
    });
  }

  #hear(said: Said): void {
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
