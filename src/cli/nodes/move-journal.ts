/**
 * How far a move of an app to another node is: a file of the user's beside the names of the nodes, written before each step,
 * so that after whatever end the next command knows on which node the app may run.
 */
import { randomUUID } from "node:crypto";
import { mkdir, open, readFile, rename, rm, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import { SvcError } from "../../errors.ts";
import { readBootId } from "../../lib/boot-id.ts";
import { readProcessIdentity } from "../../lib/process-identity.ts";
import { nodeFileOf, type NodeHome } from "./node-file.ts";

/**
 * `copying`: it runs where it was, if it ran. `handing`: it is stopped there, or about to be, and was started nowhere else.
 * `starting`: it is stopped there, and may run on the other node.
 */
export type MoveStep = "copying" | "handing" | "starting";
const steps: readonly MoveStep[] = ["copying", "handing", "starting"];

export interface Move {
  readonly id: string;
  /** Name of the other node. */
  readonly to: string;
  /** Where that node was. */
  readonly address: string;
  /** When the app was installed where it was: another one of its id has another time. */
  readonly created: string | undefined;
  /** The same of what arrived on the other node; undefined while that is not known. */
  readonly arrived: string | undefined;
  /** Name of the archive where it was that what arrived is from; undefined while there is none. */
  readonly base: string | undefined;
  readonly step: MoveStep;
  /** Whether it was meant to run. */
  readonly wasEnabled: boolean;
}

/** A process in one boot of this machine. */
interface Holder {
  readonly bootId: string;
  readonly pid: number;
  readonly startTicks: number;
}

interface Kept extends Move {
  readonly holder: Holder;
}

export class MoveJournal {
  /** Of its file. */
  readonly path: string;

  /** @param from the node that it comes from */
  constructor(host: NodeHome, from: string, id: string) {
    const name = `${encodeURIComponent(from)},${encodeURIComponent(id)}.json`;
    this.path = join(dirname(nodeFileOf(host)), "moves", name);
  }

  /** The move that was begun and has not ended. @throws SvcError `conflict` while another process is at it */
  async read(): Promise<Move | undefined> {
    const kept = await this.#read();
    if (kept === undefined) return undefined;
    const { holder, ...move } = kept;
    const { pid, bootId, startTicks } = holder;
    if (pid === process.pid || bootId !== (await readBootId())) return move;
    if ((await readProcessIdentity(pid))?.startTicks !== startTicks) return move;
    throw new SvcError("conflict", `another svc, with the pid ${pid}, moves ${move.id} already`);
  }

  /** Durable when it resolves. @throws SvcError `conflict` when another process has taken over */
  async write(move: Move): Promise<void> {
    await this.read();
    const holder = await thisProcess();
    await mkdir(dirname(this.path), { recursive: true, mode: 0o700 });
    const fresh = `${this.path}.${randomUUID()}`;
    try {
      const text = `${JSON.stringify({ ...move, holder } satisfies Kept)}\n`;
      await writeFile(fresh, text, { mode: 0o600, flag: "wx", flush: true });
      await rename(fresh, this.path);
    } catch (error) {
      await rm(fresh, { force: true });
      throw error;
    }
    await this.#keep();
  }

  /** Durable when it resolves. */
  async end(): Promise<void> {
    await rm(this.path, { force: true });
    await this.#keep();
  }

  /** A name is on the disk once its directory is. */
  async #keep(): Promise<void> {
    await using directory = await open(dirname(this.path), "r");
    await directory.sync();
  }

  async #read(): Promise<Kept | undefined> {
    let text: string;
    try {
      text = await readFile(this.path, "utf8");
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code === "ENOENT") return undefined;
      throw error;
    }
    try {
      const kept = JSON.parse(text) as Kept;
      if (steps.includes(kept.step) && typeof kept.holder.pid === "number") return kept;
    } catch {
      // Said below.
    }
    throw new SvcError(
      "not_possible",
      `${this.path} is damaged: see on which node the app runs, stop it on the other, and remove the file`,
    );
  }
}

async function thisProcess(): Promise<Holder> {
  const [bootId, identity] = await Promise.all([readBootId(), readProcessIdentity(process.pid)]);
  return { bootId, pid: process.pid, startTicks: identity?.startTicks ?? 0 };
}
