/**
 * The progress of moving an app to another node. It is stored in a file of the user next to the node names
 * and written before each step, so that after any interruption the next command knows on which node the app
 * may run.
 */
import { mkdir, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SvcError } from "../../errors.ts";
import { readBootId, readProcessIdentity } from "../../sys/process-identity.ts";
import { nodeFileOf, type NodeHome } from "./node-file.ts";

/**
 * `copying`: the app runs on the source node, if it was running. `handing`: it is stopped there or about to
 * be, and was not started elsewhere. `starting`: it is stopped there and may run on the target node.
 */
export type MoveStep = "copying" | "handing" | "starting";
const steps: readonly MoveStep[] = ["copying", "handing", "starting"];

export interface Move {
  readonly id: string;
  /** Name of the target node. */
  readonly to: string;
  /** Address of the target node when the move began. */
  readonly address: string;
  /** Installation time of the app on the source node; it distinguishes the app from a later one with the same ID. */
  readonly created: string | undefined;
  /** Installation time of the copy on the target node; undefined while unknown. */
  readonly arrived: string | undefined;
  /** Name of the archive on the source node from which the copy was made; undefined if there is none. */
  readonly base: string | undefined;
  readonly step: MoveStep;
  /** Whether the app was enabled. */
  readonly wasEnabled: boolean;
}

/** A process in one boot of this host. */
interface Holder {
  readonly bootId: string;
  readonly pid: number;
  readonly startTicks: number;
}

interface StoredMove extends Move {
  readonly holder: Holder;
}

export class MoveJournal {
  /** Path of the journal file. */
  readonly path: string;

  /** @param from the source node */
  constructor(host: NodeHome, from: string, id: string) {
    const name = `${encodeURIComponent(from)},${encodeURIComponent(id)}.json`;
    this.path = join(dirname(nodeFileOf(host)), "moves", name);
  }

  /** The unfinished move, if any. @throws SvcError `conflict` while another process works on it */
  async read(): Promise<Move | undefined> {
    const stored = await this.#read();
    if (stored === undefined) return undefined;
    const { holder, ...move } = stored;
    const { pid, bootId, startTicks } = holder;
    if (pid === process.pid || bootId !== (await readBootId())) return move;
    if ((await readProcessIdentity(pid))?.startTicks !== startTicks) return move;
    throw new SvcError("conflict", `another svc process (pid ${pid}) is already moving ${move.id}`);
  }

  /** Durable when it resolves. @throws SvcError `conflict` if another process has taken over */
  async write(move: Move): Promise<void> {
    await this.read();
    const holder = await thisProcess();
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    const fresh = `${this.path}.${crypto.randomUUID()}`;
    try {
      const text = `${JSON.stringify({ ...move, holder } satisfies StoredMove)}\n`;
      await writeFile(fresh, text, { mode: 0o600, flag: "wx", flush: true });
      await rename(fresh, this.path);
    } catch (error) {
      await rm(fresh, { force: true });
      throw error;
    }
    await this.#syncDirectory();
  }

  /** Deletes the journal; durable when it resolves. */
  async end(): Promise<void> {
    await rm(this.path, { force: true });
    await this.#syncDirectory();
  }

  /** Makes a new or removed file name durable, which requires syncing its directory. */
  async #syncDirectory(): Promise<void> {
    await using directory = await open(dirname(this.path), "r");
    await directory.sync();
  }

  async #read(): Promise<StoredMove | undefined> {
    let text: string;
    try {
      text = await readFile(this.path, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
    try {
      const stored = JSON.parse(text) as StoredMove;
      if (steps.includes(stored.step) && typeof stored.holder.pid === "number") return stored;
    } catch {
      // Reported below.
    }
    throw new SvcError(
      "not_possible",
      `${this.path} is damaged: check on which node the app runs, stop it on the other, then remove the file`,
    );
  }
}

async function thisProcess(): Promise<Holder> {
  const [bootId, identity] = await Promise.all([readBootId(), readProcessIdentity(process.pid)]);
  return { bootId, pid: process.pid, startTicks: identity?.startTicks ?? 0 };
}
