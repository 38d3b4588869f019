/**
 * The steps of a move between nodes, each written down before it is taken. The app is started on the other node only when it
 * is known to be stopped here, and here again only when it is known to be stopped there.
 */
import { SvcError } from "../../errors.ts";
import { comeUp } from "../come-up.ts";
import type { CommandContext } from "../context.ts";
import { describeFailure } from "../failure.ts";
import type { Move, MoveJournal, MoveStep } from "../nodes/move-journal.ts";
import { calls, type App } from "../transport/calls.ts";
import { archiveOf, forget, transfer, type Arrived, type Transfer } from "./app-transfer.ts";
import { findApp } from "./transfer-plan.ts";

export interface Moved extends Pick<Arrived, "bytes" | "warnings"> {
  /** From its stop here until it was up there. */
  readonly pausedMs: number;
  readonly isRemoved: boolean;
}

export interface MoveNodes extends Pick<Transfer, "from" | "to" | "identity"> {
  readonly fromName: string;
  readonly packageId: string;
}

/** Milliseconds after Ctrl-C that a look at the other node may take, and to stop or start the app; a second Ctrl-C ends them. */
const [lookMs, orderMs] = [15_000, 5 * 60_000];
/** Milliseconds that what was given up may hold the app still, and between two tries. */
const [busyMs, retryMs] = [60_000, 200];

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
  async run(options: { readonly remove: boolean }): Promise<Moved> {
    try {
      return await this.#run(options);
    } finally {
      await this.#forgetBase();
    }
  }

  async #forgetBase(): Promise<void> {
    const { id, base } = this.#move;
    if (base === undefined) return;
    await forget(this.#nodes.from, archiveOf(id, base));
    this.#move = { ...this.#move, base: undefined };
    if ((await this.#journal.read()) !== undefined) await this.#journal.write(this.#move);
  }

  async #run({ remove }: { readonly remove: boolean }): Promise<Moved> {
    let arrived: Pick<Arrived, "bytes" | "warnings"> = { bytes: 0, warnings: [] };
    // From here on this process is at it.
    await this.#goTo(this.#move.step);
    if (this.#move.step === "copying") {
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
    if (remove) await this.#nodes.from.call(calls.removeApp, { id: this.#move.id });
    await this.#journal.end();
    return { ...arrived, pausedMs, isRemoved: remove };
  }

  /** It runs here again, if it did. @returns whether the other node has it, stopped. @throws SvcError while it may run there */
  async abort(): Promise<boolean> {
    const { id, step } = this.#move;
    const { to } = this.#nodes;
    await this.#goTo(step);
    if (step === "starting") {
      const there = await findApp(to, id);
      if (there !== undefined && this.#isOurs(there)) await stop(to, id);
    } else if (await this.#wasStartedThere(to)) {
      await stop(to, id);
    }
    to.throwIfInterrupted();
    await this.#comeBack();
    await this.#forgetBase();
    await this.#journal.end();
    return (await findApp(to, id)) !== undefined;
  }

  async #copy(): Promise<void> {
    const { to } = this.#nodes;
    try {
      // Replaced by what is read when it stands still.
      await this.#forgetBase();
      const { archive } = await this.#transfer({ mode: "live", isBase: true });
      this.#move = { ...this.#move, base: archive?.name };
    } catch (error) {
      // Nothing has begun then.
      const isThere = await findApp(to.uninterrupted(lookMs), this.#move.id).then(Boolean, () => true);
      if (!isThere) await this.#journal.end();
      throw error;
    }
  }

  async #hand(): Promise<Arrived> {
    const { from, to } = this.#nodes;
    if (await this.#wasStartedThere(to)) throw this.#startedThere();
    try {
      await stop(from, this.#move.id);
      const arrived = await this.#transferRest();
      from.throwIfInterrupted();
      return arrived;
    } catch (error) {
      if (await this.#wasStartedThere(to.uninterrupted(lookMs))) throw this.#startedThere(error);
      await this.#comeBackOrSay();
      throw error;
    }
  }

  async #start(): Promise<void> {
    const { to, fromName } = this.#nodes;
    const { id, wasEnabled, to: toName } = this.#move;
    const [here, there] = await this.#lookAtBoth();
    if (!isStopped(here)) {
      throw new SvcError(
        "not_possible",
        `${id} was started on ${fromName} meanwhile: stop it and go on, or go back with svc app move ${id} --abort`,
      );
    }
    if (there !== undefined && !this.#isOurs(there)) {
      throw new SvcError(
        "not_possible",
        `the app ${id} on ${toName} is another one: go back with svc app move ${id} --abort`,
      );
    }
    if (!wasEnabled) return;
    try {
      await comeUp(to, await to.call(calls.startApp, { id }), {});
    } catch (error) {
      const awake = to.uninterrupted(orderMs);
      try {
        await whenFree(awake, () => stop(awake, id));
      } catch {
        this.#noteUnknown();
        throw error;
      }
      await this.#comeBackOrSay();
      throw error;
    }
  }

  async #lookAtBoth(): Promise<readonly [here: App, there: App | undefined]> {
    const { from, to } = this.#nodes;
    const { id } = this.#move;
    try {
      return await Promise.all([from.call(calls.getApp, { id }), findApp(to, id)]);
    } catch (error) {
      this.#noteUnknown();
      throw error;
    }
  }

  /** To be called only when it is known not to run on the other node. Ctrl-C does not end it. */
  async #comeBack(): Promise<void> {
    const { id, wasEnabled } = this.#move;
    await this.#goTo("copying");
    if (!wasEnabled) return;
    const from = this.#nodes.from.uninterrupted(orderMs);
    await whenFree(from, () => from.call(calls.startApp, { id }));
  }

  /** Says what is in the way of that. */
  async #comeBackOrSay(): Promise<void> {
    try {
      await this.#comeBack();
    } catch (error) {
      const { id } = this.#move;
      const { from, fromName } = this.#nodes;
      const words =
        `${id} could not be started on ${fromName} again and may run on neither node ` +
        `(${describeFailure(error).message}): go on with svc app move ${id}, or go back with svc app move ${id} --abort`;
      from.note(words);
    }
  }

  #noteUnknown(): void {
    const { from, fromName } = this.#nodes;
    const { id, to } = this.#move;
    const words =
      `whether ${id} runs on ${to} is not known, so it stays stopped on ${fromName}: ` +
      `go on with svc app move ${id}, or go back with svc app move ${id} --abort`;
    from.note(words);
  }

  /** What changed since it was copied; all of it where the nodes do not know, or cannot do, that. */
  async #transferRest(): Promise<Arrived> {
    const { id, base } = this.#move;
    if (base === undefined) return this.#transfer({});
    try {
      return await this.#transfer({ since: archiveOf(id, base) });
    } catch (error) {
      const { from } = this.#nodes;
      from.throwIfInterrupted();
      from.note(`it is copied once more as a whole: ${describeFailure(error).message}`);
      return this.#transfer({});
    }
  }

  /** Into the place of what arrived before. */
  async #transfer(how: Pick<Transfer, "mode" | "isBase" | "since">): Promise<Arrived> {
    const { to } = this.#nodes;
    const { id, to: toName } = this.#move;
    const there = await findApp(to, id);
    if (there !== undefined && (!this.#isOurs(there) || !isStopped(there))) {
      throw new SvcError(
        "not_possible",
        `the app ${id} on ${toName} is another one, or runs: look at it there`,
      );
    }
    const arrived = await transfer({ ...this.#nodes, ...how, id }, false);
    const { created_at } = there ?? (await to.call(calls.getApp, { id }));
    this.#move = { ...this.#move, arrived: created_at };
    return arrived;
  }

  /** Before this command did: by somebody else. False where the node cannot be asked. */
  async #wasStartedThere(to: CommandContext): Promise<boolean> {
    const there = await findApp(to, this.#move.id).catch(() => undefined);
    if (there === undefined || !this.#isOurs(there)) return false;
    return there.enabled || ["STARTING", "RUNNING", "STOPPING"].includes(there.state);
  }

  #startedThere(cause?: unknown): SvcError {
    const { id, to } = this.#move;
    const words =
      `${id} was started on ${to} meanwhile, so it is not started on ${this.#nodes.fromName}: stop it on ${to} and go on, ` +
      `which replaces what it has there, or go back with svc app move ${id} --abort`;
    return new SvcError("not_possible", words, { cause });
  }

  /** What arrived there, as far as is known. */
  #isOurs(there: App): boolean {
    const { arrived } = this.#move;
    const isSame = arrived === undefined || there.created_at === arrived;
    return isSame && there.package_id === this.#nodes.packageId;
  }

  async #goTo(step: MoveStep): Promise<void> {
    const move = { ...this.#move, step };
    await this.#journal.write(move);
    this.#move = move;
  }
}

/** What was given up a moment ago may hold the app still. */
async function whenFree<T>(node: CommandContext, attempt: () => Promise<T>): Promise<T> {
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
