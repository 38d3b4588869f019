/**
 * The steps of a move between nodes, each written to the journal before it runs. The app is started on the
 * target node only when it is known to be stopped here, and started here again only when it is known to be
 * stopped there.
 */
import { SvcError } from "../../errors.ts";
import { startAndWait } from "../wait-until-up.ts";
import type { CommandContext } from "../context.ts";
import { describeFailure } from "../output/failure.ts";
import type { Move, MoveJournal, MoveStep } from "../nodes/move-journal.ts";
import { calls, type App } from "../client/calls.ts";
import {
  transferArchive,
  removeArchive,
  transfer,
  type TransferResult,
  type Transfer,
} from "./app-transfer.ts";
import { findApp } from "./transfer-plan.ts";

export interface Moved extends Pick<TransferResult, "bytes" | "warnings"> {
  /** Downtime: from the stop here until the app was up there. */
  readonly pausedMs: number;
  readonly isRemoved: boolean;
}

export interface MoveNodes extends Pick<Transfer, "from" | "to" | "owner" | "identity" | "accepted"> {
  readonly fromName: string;
  readonly packageId: string;
}

/**
 * Milliseconds after Ctrl-C for a query to the other node, and for stopping or starting the app. A second
 * Ctrl-C ends them.
 */
const [queryTimeoutMs, commandTimeoutMs] = [15_000, 5 * 60_000];
/** Milliseconds that a canceled operation may keep the app busy, and between two attempts. */
const [busyMs, retryMs] = [60_000, 200];

export class AppMove {
  readonly #nodes: MoveNodes;
  readonly #journal: MoveJournal;
  #move: Move;
  #accepted: Transfer["accepted"];

  constructor(nodes: MoveNodes, journal: MoveJournal, move: Move) {
    this.#nodes = nodes;
    this.#journal = journal;
    this.#move = move;
    this.#accepted = nodes.accepted;
  }

  /** Runs the remaining steps. If one fails, starts the app here again if that is safe. @throws the failure */
  async run(options: { readonly remove: boolean }): Promise<Moved> {
    try {
      return await this.#run(options);
    } finally {
      await this.#removeBase();
    }
  }

  async #removeBase(): Promise<void> {
    const { id, base } = this.#move;
    if (base === undefined) return;
    await removeArchive(this.#nodes.from, transferArchive(id, base));
    this.#move = { ...this.#move, base: undefined };
    if ((await this.#journal.read()) !== undefined) await this.#journal.write(this.#move);
  }

  async #run({ remove }: { readonly remove: boolean }): Promise<Moved> {
    let arrived: Pick<TransferResult, "bytes" | "warnings"> = { bytes: 0, warnings: [] };
    // Claims the move for this process.
    await this.#enterStep(this.#move.step);
    if (this.#move.step === "copying") {
      // A stopped app is copied only once.
      if (this.#move.wasEnabled) await this.#copy();
      await this.#enterStep("handing");
    }
    const pausedAtMs = performance.now();
    if (this.#move.step === "handing") {
      arrived = await this.#stopAndTransfer();
      await this.#enterStep("starting");
    }
    await this.#start();
    const pausedMs = performance.now() - pausedAtMs;
    if (remove) await this.#nodes.from.call(calls.removeApp, { id: this.#move.id });
    await this.#journal.end();
    return { ...arrived, pausedMs, isRemoved: remove };
  }

  /**
   * Returns the app to this node, running if it was.
   * @returns whether the other node has a stopped copy
   * @throws SvcError while the app may run there
   */
  async abort(): Promise<boolean> {
    const { id, step } = this.#move;
    const { to } = this.#nodes;
    await this.#enterStep(step);
    if (step === "starting") {
      const copy = await findApp(to, id);
      if (copy !== undefined && this.#isOurCopy(copy)) await stop(to, id);
    } else if (await this.#wasStartedThere(to)) {
      await stop(to, id);
    }
    to.throwIfInterrupted();
    await this.#startAgainHere();
    await this.#removeBase();
    await this.#journal.end();
    return (await findApp(to, id)) !== undefined;
  }

  async #copy(): Promise<void> {
    const { to } = this.#nodes;
    try {
      // The final copy, made after the stop, replaces the base.
      await this.#removeBase();
      const { archive } = await this.#transfer({ mode: "live", isBase: true });
      this.#move = { ...this.#move, base: archive?.name };
    } catch (error) {
      // If nothing has arrived on the other node, no move has begun.
      const hasArrived = await findApp(to.uninterrupted(queryTimeoutMs), this.#move.id).then(
        Boolean,
        () => true,
      );
      if (!hasArrived) await this.#journal.end();
      throw error;
    }
  }

  async #stopAndTransfer(): Promise<TransferResult> {
    const { from, to } = this.#nodes;
    if (await this.#wasStartedThere(to)) throw this.#startedThere();
    try {
      await stop(from, this.#move.id);
      const arrived = await this.#transferRest();
      from.throwIfInterrupted();
      return arrived;
    } catch (error) {
      if (await this.#wasStartedThere(to.uninterrupted(queryTimeoutMs))) throw this.#startedThere(error);
      await this.#tryStartAgainHere();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const { to, fromName } = this.#nodes;
    const { id, wasEnabled, to: toName } = this.#move;
    const [here, copy] = await this.#queryBoth();
    if (!isStopped(here)) {
      throw new SvcError(
        "not_possible",
        `${id} was started on ${fromName} during the move: stop it and repeat the move, or undo the move with svc app move ${id} --abort`,
      );
    }
    if (copy !== undefined && !this.#isOurCopy(copy)) {
      throw new SvcError(
        "not_possible",
        `${toName} has another app ${id}: undo the move with svc app move ${id} --abort`,
      );
    }
    if (!wasEnabled) return;
    try {
      await startAndWait(to, id, calls.startApp, {});
    } catch (error) {
      const awake = to.uninterrupted(commandTimeoutMs);
      try {
        await retryWhileBusy(awake, () => stop(awake, id));
      } catch {
        this.#noteUnknown();
        throw error;
      }
      await this.#tryStartAgainHere();
      throw error;
    }
  }

  async #queryBoth(): Promise<readonly [here: App, there: App | undefined]> {
    const { from, to } = this.#nodes;
    const { id } = this.#move;
    try {
      return await Promise.all([from.call(calls.getApp, { id }), findApp(to, id)]);
    } catch (error) {
      this.#noteUnknown();
      throw error;
    }
  }

  /** Starts the app here again. Call only when it is known not to run on the other node. Ctrl-C does not end it. */
  async #startAgainHere(): Promise<void> {
    const { id, wasEnabled } = this.#move;
    await this.#enterStep("copying");
    if (!wasEnabled) return;
    const from = this.#nodes.from.uninterrupted(commandTimeoutMs);
    await retryWhileBusy(from, () => from.call(calls.startApp, { id }));
  }

  /** Like the above, but reports a failure instead of throwing it. */
  async #tryStartAgainHere(): Promise<void> {
    try {
      await this.#startAgainHere();
    } catch (error) {
      const { id } = this.#move;
      const { from, fromName } = this.#nodes;
      const words =
        `${id} could not be started on ${fromName} again and may run on neither node ` +
        `(${describeFailure(error).message}): continue with svc app move ${id}, or undo with svc app move ${id} --abort`;
      from.note(words);
    }
  }

  #noteUnknown(): void {
    const { from, fromName } = this.#nodes;
    const { id, to } = this.#move;
    const words =
      `it is unknown whether ${id} runs on ${to}, so it stays stopped on ${fromName}: ` +
      `continue with svc app move ${id}, or undo with svc app move ${id} --abort`;
    from.note(words);
  }

  /** Transfers what has changed since the copy; everything if the nodes cannot do that. */
  async #transferRest(): Promise<TransferResult> {
    const { id, base } = this.#move;
    if (base === undefined) return this.#transfer({});
    try {
      return await this.#transfer({ since: transferArchive(id, base) });
    } catch (error) {
      const { from } = this.#nodes;
      from.throwIfInterrupted();
      from.note(`copying all data again: ${describeFailure(error).message}`);
      return this.#transfer({});
    }
  }

  /** Replaces what arrived before. */
  async #transfer(how: Pick<Transfer, "mode" | "isBase" | "since">): Promise<TransferResult> {
    const { to } = this.#nodes;
    const { id, to: toName } = this.#move;
    const copy = await findApp(to, id);
    if (copy !== undefined && (!this.#isOurCopy(copy) || !isStopped(copy))) {
      throw new SvcError(
        "not_possible",
        `${toName} has another app ${id}, or the app runs there: check it there`,
      );
    }
    const arrived = await transfer({ ...this.#nodes, ...how, id, accepted: this.#accepted }, false);
    // Asks the user only once, even if the app is copied several times.
    this.#accepted = arrived.accepted;
    const { created_at } = copy ?? (await to.call(calls.getApp, { id }));
    this.#move = { ...this.#move, arrived: created_at };
    return arrived;
  }

  /** Whether somebody else has started the app there. False if the node does not respond. */
  async #wasStartedThere(to: CommandContext): Promise<boolean> {
    const copy = await findApp(to, this.#move.id).catch(() => undefined);
    if (copy === undefined || !this.#isOurCopy(copy)) return false;
    return copy.enabled || ["STARTING", "RUNNING", "STOPPING"].includes(copy.state);
  }

  #startedThere(cause?: unknown): SvcError {
    const { id, to } = this.#move;
    const words =
      `${id} was started on ${to} during the move, so it is not started on ${this.#nodes.fromName}: stop it on ${to} and repeat the move, ` +
      `which replaces its data there, or undo the move with svc app move ${id} --abort`;
    return new SvcError("not_possible", words, { cause });
  }

  /** Whether the app there is the copy that this move made, as far as is known. */
  #isOurCopy(copy: App): boolean {
    const { arrived } = this.#move;
    const isSame = arrived === undefined || copy.created_at === arrived;
    return isSame && copy.package_id === this.#nodes.packageId;
  }

  async #enterStep(step: MoveStep): Promise<void> {
    const move = { ...this.#move, step };
    await this.#journal.write(move);
    this.#move = move;
  }
}

/** Retries while the app is busy: a canceled operation may keep it busy for a moment. */
async function retryWhileBusy<T>(node: CommandContext, attempt: () => Promise<T>): Promise<T> {
  const endMs = performance.now() + busyMs;
  for (;;) {
    try {
      return await attempt();
    } catch (error) {
      const isBusy = error instanceof SvcError && error.reason === "app_busy";
      if (!isBusy || performance.now() > endMs) throw error;
    }
    await node.pause(retryMs);
  }
}

/** Resolves when the app is known not to run. */
async function stop(node: CommandContext, id: string): Promise<void> {
  if ((await findApp(node, id)) === undefined) return;
  await node.call(calls.stopApp, { id });
  const app = await node.call(calls.getApp, { id });
  if (!isStopped(app)) throw new SvcError("not_possible", `${id} was stopped, but is ${app.state}`);
}

function isStopped({ enabled, state }: App): boolean {
  return !enabled && ["STOPPED", "FAILED", "CRASHED"].includes(state);
}
