/**
 * The app's terminal. Its output goes to the log and to all watchers, and their input goes to it. A slow watcher
 * never delays the app: it skips ahead to the latest screen.
 */
import { OutputFlow } from "../../sys/output-flow.mjs";
import { loadPtys } from "../../sys/pty.mjs";
import { RecentOutput } from "./recent-output.mjs";

/** @import { Pty } from "../../sys/pty.mjs" */
/** @import { TerminalSize } from "../../lib/terminal.ts" */
/** @import { LogWriter } from "./log-writer.mjs" */

const carriageReturn = 13;
const newlineByte = 10;
const maxWindow = 1000;
/** Per watcher: input that the app has not read. */
const maxPendingBytes = 256 * 1024;

export class AppTerminal {
  #openPty = loadPtys();
  #recent = new RecentOutput();
  #log;
  /** @type {Set<Watcher>} */
  #watchers = new Set();
  /** @type {TerminalSize} */
  #size = { columns: 80, rows: 24 };
  /** @type {Pty | undefined} */
  #pty;

  /** @param {LogWriter} log */
  constructor(log) {
    this.#log = log;
  }

  /** Opens a terminal for a start of the app. */
  open() {
    const [uid, gid] = [process.getuid?.() ?? 0, process.getgid?.() ?? 0];
    const pty = this.#openPty({ uid, gid }, this.#size);
    this.#pty = pty;
    const { path, farFd } = pty;
    const flow = new OutputFlow();
    return {
      path,
      farFd,
      flow,
      /** Resolves when all output is in the log. */
      ended: this.#read(pty, flow),
      closeFar: () => pty.closeFar(),
      hangUp: () => pty[Symbol.dispose](),
    };
  }

  /**
   * Notifies all watchers that the app has ended.
   * @param {number} code as a shell reports it
   */
  ended(code) {
    this.#pty?.[Symbol.dispose]();
    this.#pty = undefined;
    for (const watcher of this.#watchers) watcher.exitCode = code;
    this.#advance();
  }

  /**
   * @param {TerminalSize | undefined} size size of the watcher's window; a watcher without one does not affect the
   *   terminal's size
   * @param {() => void} onAdvance called when there may be more to read
   */
  watch(size, onAdvance) {
    const watcher = new Watcher(
      this.#recent,
      this.#recent.screenStart(size?.rows ?? this.#size.rows),
      onAdvance,
    );
    this.#watchers.add(watcher);
    this.resize(watcher, size);
    this.#pty?.repaint();
    return watcher;
  }

  /** @param {Watcher} watcher */
  leave(watcher) {
    watcher.leave();
    this.#watchers.delete(watcher);
    this.#fit();
  }

  /**
   * @param {Watcher} watcher
   * @param {TerminalSize | undefined} size
   */
  resize(watcher, size) {
    watcher.size = isSize(size) ? size : undefined;
    this.#fit();
  }

  /**
   * Writes a watcher's input after its earlier input.
   * @param {Watcher} watcher
   * @param {Buffer} bytes
   * @returns {Promise<void>} resolves when the app has read it
   * @throws Error when too much of the watcher's input is unread
   */
  type(watcher, bytes) {
    if (watcher.pendingBytes + bytes.length > maxPendingBytes)
      throw new Error("the app does not read its input");
    watcher.pendingBytes += bytes.length;
    watcher.typed = watcher.typed.then(async () => {
      await this.#pty?.write(bytes, watcher.gone).catch(() => undefined);
      watcher.pendingBytes -= bytes.length;
    });
    return watcher.typed;
  }

  /** Sizes the terminal to the smallest window, so that every watcher sees all of it. */
  #fit() {
    const sizes = [...this.#watchers].flatMap(({ size }) => size ?? []);
    if (sizes.length === 0) return;
    const columns = Math.min(...sizes.map((size) => size.columns));
    const rows = Math.min(...sizes.map((size) => size.rows));
    if (columns === this.#size.columns && rows === this.#size.rows) return;
    this.#size = { columns, rows };
    this.#pty?.resize(this.#size);
  }

  /**
   * @param {Pty} pty
   * @param {OutputFlow} flow
   */
  async #read(pty, flow) {
    const lines = new PlainLines();
    const write = flow.watched((chunk) => this.#log.write("o", chunk));
    try {
      for await (const chunk of pty.read()) {
        this.#recent.push(chunk);
        this.#advance();
        await write(lines.take(chunk));
      }
    } finally {
      await this.#log.finishLine("o");
    }
  }

  #advance() {
    for (const { onAdvance } of this.#watchers) onAdvance();
  }
}

/** A client that watches the terminal. */
export class Watcher {
  /** @type {TerminalSize | undefined} */
  size;
  onAdvance;
  /** Set when the app has ended. @type {number | undefined} */
  exitCode;
  pendingBytes = 0;
  /** @type {Promise<void>} */
  typed = Promise.resolve();
  #recent;
  #position;
  #disconnected = new AbortController();

  /**
   * @param {RecentOutput} recent
   * @param {number} position
   * @param {() => void} onAdvance
   */
  constructor(recent, position, onAdvance) {
    this.#recent = recent;
    this.#position = position;
    this.onAdvance = onAdvance;
  }

  /** Aborts when the watcher leaves. */
  get gone() {
    return this.#disconnected.signal;
  }

  leave() {
    this.#disconnected.abort();
  }

  /** @returns {{ data: Buffer } | { missedBytes: number } | undefined} undefined when there is nothing new */
  next() {
    const { start, end } = this.#recent;
    const missedBytes = start - this.#position;
    if (missedBytes > 0) {
      const from = this.#position;
      this.#position = this.#recent.screenStart(this.size?.rows ?? 24);
      return { missedBytes: this.#position - from };
    }
    if (this.#position === end) return undefined;
    const data = this.#recent.read(this.#position);
    this.#position += data.length;
    return { data };
  }
}

/** Converts a terminal's line ends, CR LF, to those of a log, LF. */
class PlainLines {
  #isReturnHeld = false;

  /**
   * @param {Buffer} chunk
   * @returns {Buffer}
   */
  take(chunk) {
    const bytes = this.#isReturnHeld ? Buffer.concat([Buffer.of(carriageReturn), chunk]) : chunk;
    this.#isReturnHeld = bytes.at(-1) === carriageReturn;
    const plain = Buffer.allocUnsafe(bytes.length);
    let length = 0;
    for (let from = 0; from < bytes.length;) {
      const at = bytes.indexOf(carriageReturn, from);
      const end = at === -1 ? bytes.length : at;
      length += bytes.copy(plain, length, from, end);
      from = end + 1;
      if (at >= 0 && from < bytes.length && bytes[from] !== newlineByte) plain[length++] = carriageReturn;
    }
    return plain.subarray(0, length);
  }
}

/**
 * @param {TerminalSize | undefined} size
 * @returns {size is TerminalSize}
 */
function isSize(size) {
  return (
    size !== undefined &&
    [size.columns, size.rows].every((count) => Number.isInteger(count) && count >= 1 && count <= maxWindow)
  );
}
