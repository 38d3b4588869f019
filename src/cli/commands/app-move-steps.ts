/**
 * The steps of a move between nodes, each written down before it is taken. The app is started on the other node only when it
 * is known to be stopped here, and here again only when it is known to be stopped there.
 */
import { SvcError } from "../../errors.ts";
import { comeUp } from "../come-up.ts";
import type { CommandContext } from "../context.ts";
import type { Move, MoveJournal, MoveStep } from "../nodes/move-journal.ts";
import { escapeControls } from "../render/escape.ts";
import { calls, type App } from "../transport/calls.ts";
import { transfer, type Arrived, type Transfer } from "./app-transfer.ts";
import { findApp } from "./transfer-plan.ts";

export interface Moved extends Pick<Arrived, "bytes" | "warnings"> {
  /** From its stop here until it was up there. */
  readonly pausedMs: number;
  readonly isRemoved: boolean;
}

export interface MoveNodes extends Omit<Transfer, "id"> {
  readonly fromName: string;
}

export class AppMove {
  readonly #nodes: MoveNodes;
  readonly #journal: MoveJournal;
  #move: Move;

  constructor(nodes: MoveNodes, journal: MoveJournal, move: Move) {
    this.#nodes = nodes;
    this.#journal = journal;
    this.#move = move;
  }

  /** From the step that it is at to the end. @throws what was in the way; where that can be, it runs here again then */
  async run({ remove }: { readonly remove: boolean }): Promise<Moved> {
    let arrived: Pick<Arrived, "bytes" | "warnings"> = { bytes: 0, warnings: [] };
    if (this.#move.step === "copying") {
      await this.#goTo("copying");
      // What is stopped is copied once.
      if (this.#move.wasEnabled) await this.#copy();
      await this.#goTo("handing");
    }
    const pausedAtMs = performance.now();
    if (this.#move.step === "handing") {
      arrived = await this.#hand();
      await this.#goTo("starting");
    }
    await this.#start();
    const pausedMs = performance.now() - pausedAtMs;
    // Before the removal: what is written down must not meet a later app of that id.
    await this.#journal.end();
    if (remove) await this.#nodes.from.call(calls.removeApp, { id: this.#move.id });
    return { ...arrived, pausedMs, isRemoved: remove };
  }

  /** It runs here again, if it did. @throws SvcError while it is not known to be stopped on the other node */
  async abort(): Promise<void> {
    const { id, step } = this.#move;
    if (step === "starting") await stop(this.#nodes.to, id);
    await this.#comeBack();
    await this.#journal.end();
  }

  async #copy(): Promise<void> {
    try {
      await this.#transfer();
    } catch (error) {
      // Nothing has begun then.
      const isThere = await findApp(this.#nodes.to, this.#move.id).then(Boolean, () => true);
      if (!isThere) await this.#journal.end();
      throw error;
    }
  }

  async #hand(): Promise<Arrived> {
    try {
      await stop(this.#nodes.from, this.#move.id);
      return await this.#transfer();
    } catch (error) {
      await this.#comeBack();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const { from, to, fromName } = this.#nodes;
    const { id, wasEnabled, to: toName } = this.#move;
    if (!isStopped(await from.call(calls.getApp, { id }))) {
      throw new SvcError(
        "not_possible",
        `${id} was started on ${fromName} meanwhile: stop it and go on, or go back with svc app move ${id} --abort`,
      );
    }
    if (!wasEnabled) return;
    try {
      await comeUp(to, await to.call(calls.startApp, { id }), {});
    } catch (error) {
      try {
        await stop(to, id);
      } catch {
        const words =
          `whether ${id} runs on ${toName} is not known, so it stays stopped on ${fromName}: ` +
          `go on with svc app move ${id}, or go back with svc app move ${id} --abort`;
        from.note(escapeControls(words));
        throw error;
      }
      await this.#comeBack();
      throw error;
    }
  }

  /** To be called only when it is known not to run on the other node. */
  async #comeBack(): Promise<void> {
    const { from } = this.#nodes;
    const { id, wasEnabled } = this.#move;
    await this.#goTo("copying");
    if (wasEnabled) await from.call(calls.startApp, { id });
  }

  /** Into the place of what arrived before. */
  async #transfer(): Promise<Arrived> {
    const { from, to } = this.#nodes;
    const { id, to: toName } = this.#move;
    const [here, there] = await Promise.all([from.call(calls.getApp, { id }), findApp(to, id)]);
    if (there !== undefined && (there.package_id !== here.package_id || !isStopped(there))) {
      throw new SvcError(
        "not_possible",
        `the app ${id} on ${toName} is another one, or runs: look at it there`,
      );
    }
    return transfer({ ...this.#nodes, id }, false);
  }

  async #goTo(step: MoveStep): Promise<void> {
    const move = { ...this.#move, step };
    await this.#journal.write(move);
    this.#move = move;
  }
}

/** Resolves when it is known not to run. */
async function stop(node: CommandContext, id: string): Promise<void> {
  if ((await findApp(node, id)) === undefined) return;
  await node.call(calls.stopApp, { id });
  const app = await node.call(calls.getApp, { id });
  if (!isStopped(app)) throw new SvcError("not_possible", `${id} was stopped and is ${app.state}`);
}

function isStopped({ enabled, state }: App): boolean {
  return !enabled && ["STOPPED", "FAILED", "CRASHED"].includes(state);
}
