/** Output and exits of apps under systemd, from the journal. */
import { stat } from "node:fs/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import { requireNoUserMount } from "../../sys/user-mounts.ts";
import type { RunnableApp } from "../runnable-app.ts";
import type { LogChunk } from "../../logs/log-chunk.ts";
import { unitName } from "./app-unit.ts";
import {
  readJournal,
  readLastExit,
  type JournalLine,
  type JournalQuestion,
  type MainExit,
} from "./journal.ts";

const maxStatusLines = 20;
const maxLogBytes = 4 * 1024 * 1024;
/** Maximum number of lines per chunk of a followed log. */
const linesTogether = 500;

export class ServiceLogs {
  readonly #isHere: boolean;

  /** @param options whether systemd runs on this host; otherwise there are no logs */
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

  /**
   * Yields the newest lines, or all lines since `fromMs`, and then each new line. After `stopped` aborts, it yields the rest of
   * the lines that were printed before, and ends. When `signal` aborts, it ends at once.
   */
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

  /** Empty if they cannot be read: the app's status does not depend on them. */
  async lastLines(app: RunnableApp): Promise<string[]> {
    const read = this.newest(app, maxStatusLines).then(({ lines }) => lines.map(({ text }) => text));
    return read.catch(() => []);
  }

  /** How the main process ended before systemd last restarted it. */
  async lastExit({ id, runDir }: RunnableApp): Promise<MainExit | undefined> {
    return readLastExit(unitName(id), await createdAtMsOf(runDir));
  }
}

async function questionOf(
  { id, uid, ownerUid, runDir }: RunnableApp,
  signal: AbortSignal | undefined,
): Promise<Omit<JournalQuestion, "from" | "follow">> {
  const sinceMs = await createdAtMsOf(runDir);
  // Units of root's apps may run as any user.
  return { unit: unitName(id), uid: ownerUid === 0 ? undefined : uid, sinceMs, signal };
}

/** The run directory is as old as the app: earlier lines belong to another app of the same name. */
async function createdAtMsOf(runDir: string): Promise<number> {
  await requireNoUserMount(runDir);
  return (await stat(runDir)).birthtimeMs;
}

function chunkOf(lines: readonly JournalLine[], truncated = false): LogChunk {
  return {
    lines: lines.map(({ timeMs, stream, text }) => ({ timeMs, stream, text })),
    truncated,
    missedBytes: 0,
  };
}

/** Combines available lines into chunks. */
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
