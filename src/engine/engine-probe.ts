/** Whether the container engine accepts connections. Loads no client of the engine. */
import { connect } from "node:net";

export type EngineCondition = "AVAILABLE" | "MISSING" | "DENIED" | "UNAVAILABLE";

/** Milliseconds that a result stays valid. */
const freshMs = 10_000;
/** Milliseconds. A full queue of pending connections makes a connection wait. */
const timeoutMs = 1_000;

const conditions: Readonly<Record<string, EngineCondition>> = { ENOENT: "MISSING", EACCES: "DENIED" };

export class EngineProbe {
  /** Path of the engine's socket. */
  readonly socket: string;
  readonly #now: () => number;
  #probed: { readonly untilMs: number; readonly condition: Promise<EngineCondition> } | undefined;

  /** @param now monotonic milliseconds */
  constructor(socket: string, now = () => performance.now()) {
    this.socket = socket;
    this.#now = now;
  }

  /** At most ten seconds old. */
  condition(): Promise<EngineCondition> {
    if (this.#probed === undefined || this.#now() >= this.#probed.untilMs)
      this.#probed = { untilMs: this.#now() + freshMs, condition: probe(this.socket) };
    return this.#probed.condition;
  }
}

function probe(path: string): Promise<EngineCondition> {
  return new Promise((resolve) => {
    const socket = connect({ path, timeout: timeoutMs });
    const end = (condition: EngineCondition): void => {
      socket.destroy();
      resolve(condition);
    };
    socket.once("connect", () => end("AVAILABLE"));
    socket.once("timeout", () => end("UNAVAILABLE"));
    socket.once("error", ({ code = "" }: NodeJS.ErrnoException) => end(conditions[code] ?? "UNAVAILABLE"));
  });
}
