/** `svc app move`: an app to another node. */
import type { Command } from "commander";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { chooseNode, findNode } from "../nodes/choose-node.ts";
import { MoveJournal, type Move } from "../nodes/move-journal.ts";
import { localNode } from "../nodes/node-file.ts";
import { confirmRemoval } from "../prompt.ts";
import { formatBytes } from "../render/units.ts";
import type { RunCommand } from "../run-command.ts";
import { calls, type App } from "../transport/calls.ts";
import { AppMove, type Moved } from "./app-move-steps.ts";
import { identityHelp, readIdentity, type IdentityOption } from "./backup/archive-ref.ts";
import { planTransfer, sayPlan } from "./transfer-plan.ts";

export function addMoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("move")
    .description("move an app with its data to another node; it runs on one of them at most")
    .argument("<id>", "the app to move")
    .option("--to <node>", "a node of svc node list")
    .option("--dry-run", "say what would be moved, and change nothing")
    .option("--remove", "remove it here in the end, with all its data (asks first; --yes does not)")
    .option("--abort", "after an interruption: have it run here again, as before")
    .option("--identity <file>", identityHelp)
    .addHelpText("after", examples)
    .action(run(move));
}

const examples = `
It is copied while it runs, then stopped here, copied again, and started there, under the same id. Where that fails, and at
Ctrl-C, it runs here again. After either, and where the command itself was killed, the same command goes on, and --abort goes back.
Here it stays, stopped, unless --remove is given; its jobs and its backup policy stay here, too.

Examples:
  svc app move hello --to attic --dry-run
  svc app move hello --to attic
`;

interface MoveOptions extends IdentityOption {
  readonly to?: string;
  readonly dryRun?: boolean;
  readonly remove?: boolean;
  readonly abort?: boolean;
}

async function move(context: CommandContext, given: string, options: MoveOptions): Promise<void> {
  const { to: wanted, dryRun = false, remove = false, abort = false } = options;
  const from = chooseNode(context.host, context.options)?.name ?? localNode;
  if (abort && (dryRun || remove)) {
    throw new UsageError("--abort goes back, with neither --dry-run nor --remove");
  }
  if (wanted === from) throw new UsageError(`${given} is on ${from} already; --to names another node`);
  const app = await context.call(calls.getApp, { id: given });
  const { id, enabled } = app;
  const journal = new MoveJournal(context.host, context.options.socket ?? from, id);
  const left = await journal.read();
  if (abort && left === undefined) {
    throw new SvcError("not_possible", `no move of ${id} was interrupted: there is nothing to go back to`);
  }
  const name = wanted ?? left?.to;
  if (name === undefined) throw new UsageError("--to names the node that it moves to");
  const address = findNode(context.host, name)?.address ?? context.options.socket ?? localNode;
  if (left !== undefined) requireSame(left, { app, name, address, path: journal.path });

  await using to = context.at(name);
  if (left === undefined) {
    const plan = await planTransfer(context, to, id);
    if (plan.exists) {
      throw new SvcError(
        "already_exists",
        `${name} has an app ${id} already: see which of the two is wanted (svc ls --all-nodes)`,
      );
    }
    if (dryRun) {
      await sayPlan(context, plan, `would be moved to ${name}`);
      return;
    }
  } else if (dryRun) {
    await context.tell({ id, node: name, step: left.step }, `${id} would go on to ${name}: ${left.step}`);
    return;
  }
  if (remove) {
    const question = `Remove ${id} here with all data, once it runs on ${name}?`;
    await confirmRemoval(context, { question, loss: "removing an app destroys its data" });
  }
  const begun: Move =
    left === undefined
      ? { id, to: name, address, created: app.created_at, ...notBegun, wasEnabled: enabled }
      : // Somebody may have started it here meanwhile.
        { ...left, wasEnabled: left.wasEnabled || enabled };
  const identity = await readIdentity(context, options);
  const nodes = { from: context, to, identity, fromName: from, packageId: app.package_id };
  const steps = new AppMove(nodes, journal, begun);
  if (abort) {
    const isThere = await steps.abort();
    const there = isThere
      ? `what arrived on ${name} is stopped there; remove it with: svc -N ${name} app remove ${id}`
      : `${name} has nothing of it`;
    await context.tell({ id, node: from }, `${id} is on ${from} as before; ${there}`);
    return;
  }
  await sayMoved(context, await steps.run({ remove }), { id, from, name });
}

const notBegun = { step: "copying", arrived: undefined, base: undefined } as const;

/** @throws SvcError where the move that was begun is another one */
function requireSame(
  { id, to, created, address }: Move,
  now: { readonly app: App; readonly name: string; readonly address: string; readonly path: string },
): void {
  const { app, name, path } = now;
  let words: string;
  if (to !== name) {
    words = `${id} is on its way to ${to}: go on with svc app move ${id} --to ${to}, or go back with svc app move ${id} --abort`;
  } else if (address !== now.address) {
    words = `${id} is on its way to ${to} at ${address}, which is at ${now.address} now: name the former ${to} again`;
  } else if (created !== app.created_at) {
    words = `${path} is of an earlier app ${id}: see what runs on ${to}, and remove the file`;
  } else {
    return;
  }
  throw new SvcError("not_possible", words);
}

function sayMoved(
  context: CommandContext,
  { bytes, pausedMs, isRemoved, warnings }: Moved,
  { id, from, name }: { readonly id: string; readonly from: string; readonly name: string },
): Promise<void> {
  if (context.json) {
    const paused = Math.round(pausedMs);
    return context.printJson({
      ...{ id, node: name, restored_bytes: bytes, paused_ms: paused, removed: isRemoved, warnings },
    });
  }
  for (const warning of warnings) context.note(`warning: ${warning}`);
  const paused = `it was away for ${(pausedMs / 1_000).toFixed(1)} s`;
  const rest = isRemoved ? "" : ` On ${from} it is stopped; remove it there with: svc app remove ${id}`;
  const done = `Moved ${id} to ${name} (${formatBytes(bytes)}; ${paused}).${rest}`;
  return context.printLine(done);
}
