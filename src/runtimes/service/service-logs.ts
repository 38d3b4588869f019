/** What apps as units of systemd have printed, and how they ended: the journal's word. */
import { stat } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { LogChunk, RunnableApp } from "../runtime.ts";
import { unitName } from "./app-unit.ts";
import {
  readJournal,
  readLastExit,
  type JournalLine,
  type JournalQuestion,
  type MainExit,
} from "./journal.ts";

const keptLines = 20;
const maxLogBytes = 4 * 1024 * 1024;
/** Lines of a followed log that come together. */
const linesTogether = 500;

export class ServiceLogs {
  readonly #isHere: boolean;

  /** @param options whether systemd runs here; elsewhere there is nothing to read */
  constructor({ isHere }: { isHere: boolean }) {
    this.#isHere = isHere;
  }

  /** The newest lines, oldest first. */
  async newest(app: RunnableApp, tail: number, signal?: AbortSignal): Promise<LogChunk> {
    const { lines, truncated } = await this.#newest(app, tail, signal);
    return chunkOf(lines, truncated);
  }

  async #newest(
    app: RunnableApp,
    tail: number,
    signal?: AbortSignal,
  ): Promise<{ lines: JournalLine[]; truncated: boolean }> {
    const lines: JournalLine[] = [];
    let bytes = 0;
    let truncated = false;
    if (tail < 1 || !this.#isHere) return { lines, truncated };
    const question = await questionOf(app, signal);
    for await (const line of readJournal({ ...question, from: { newest: tail }, follow: false })) {
      bytes += line.text.length;
      truncated = bytes > maxLogBytes && lines.length > 0;
      if (truncated) break;
      lines.push(line);
    }
    return { lines: lines.reverse(), truncated };
  }

  /** The newest lines, or all from an instant on, then each new one until `stopped` aborts, and what was printed until then. */
  async *follow(
    app: RunnableApp,
    start: { readonly tail: number } | { readonly fromMs: number },
    { signal, stopped }: { signal: AbortSignal; stopped: AbortSignal },
  ): AsyncGenerator<LogChunk, void> {
    const question = await questionOf(app, AbortSignal.any([signal, stopped]));
    let from: JournalQuestion["from"];
    if ("fromMs" in start) {
      from = start;
    } else {
      const fromMs = Date.now();
      const { lines: newest, truncated } = await this.#newest(app, start.tail, question.signal);
      if (newest.length > 0) yield chunkOf(newest, truncated);
      const last = newest.at(-1)?.cursor;
      from = last === undefined ? { fromMs } : { afterCursor: last };
    }
    for await (const lines of together(readJournal({ ...question, from, follow: true }))) {
      from = { afterCursor: lines.at(-1)?.cursor ?? "" };
      yield chunkOf(lines);
    }
    if (signal.aborted) return;
    for await (const lines of together(readJournal({ ...question, signal, from, follow: false }))) {
      yield chunkOf(lines);
    }
  }

  /** None where they cannot be read: how an app fares does not depend on it. */
  async lastLines(app: RunnableApp): Promise<string[]> {
    const read = this.newest(app, keptLines).then(({ lines }) => lines.map(({ text }) => text));
    return read.catch(() => []);
  }

  /** How the main process ended last, before systemd started it again. */
  async lastExit({ id, runDir }: RunnableApp): Promise<MainExit | undefined> {
    return readLastExit(unitName(id), (await stat(runDir)).birthtimeMs);
  }
}

/** The directory is made with the app: what the journal has from before is another one's of that name. */
async function questionOf(
  { id, uid, ownerUid, runDir }: RunnableApp,
  signal: AbortSignal | undefined,
): Promise<Omit<JournalQuestion, "from" | "follow">> {
  const { birthtimeMs } = await stat(runDir);
  // Units of root's own may run as whom they say.
  return { unit: unitName(id), uid: ownerUid === 0 ? undefined : uid, sinceMs: birthtimeMs, signal };
}

function chunkOf(lines: readonly JournalLine[], truncated = false): LogChunk {
  return {
    lines: lines.map(({ timeMs, stream, text }) => ({ timeMs, stream, text })),
    truncated,
    missedBytes: 0,
  };
}

/** Lines as they come, those that are there already in one go. */
async function* together(lines: AsyncGenerator<JournalLine, void>): AsyncGenerator<JournalLine[], void> {
  let pending: JournalLine[] = [];
  let next = lines.next();
  for (;;) {
    const result = await (pending.length === 0 ? next : Promise.race([next, nextTurn(undefined)]));
    if (pending.length > 0 && (result?.done !== false || pending.length >= linesTogether)) {
      yield pending;
      pending = [];
    }
    if (result === undefined) continue;
    if (result.done === true) return;
    pending.push(result.value);
    next = lines.next();
  }
}
