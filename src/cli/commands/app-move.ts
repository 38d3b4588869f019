/** `svc app move`: moves an app to another node. */
import type { Command } from "commander";
import { SvcError } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { acceptedBy, acceptRestoredOptions, type AcceptOptions } from "../input/accept-license.ts";
import { chooseNode, findNode } from "../nodes/choose-node.ts";
import { MoveJournal, type Move } from "../nodes/move-journal.ts";
import { localNode } from "../nodes/node-file.ts";
import { confirmRemoval, isInteractive } from "../input/prompt.ts";
import { formatBytes } from "../output/units.ts";
import type { RunCommand } from "../run-command.ts";
import { calls, type App } from "../client/calls.ts";
import { removalOf } from "./app-remove.ts";
import { AppMove, type Moved } from "./app-move-steps.ts";
import { identityHelp, readIdentity, type IdentityOption } from "./backup/archive-ref.ts";
import { acceptOwner, confirmLeftBehind, planTransfer, printPlan } from "./transfer-plan.ts";

export function addMoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("move")
    .description("move an app with its data to another node; it never runs on both")
    .argument("<id>", "the app to move")
    .option("--to <node>", "the target node; see svc node list")
    .option("--dry-run", "show what would be moved, and change nothing")
    .option(
      "--remove",
      "afterwards, remove the app here with all its data (asks for confirmation; skip with --yes)",
    )
    .option("--abort", "after an interruption: keep the app here and start it again")
    .option("--identity <file>", identityHelp)
    .option(...acceptRestoredOptions[0])
    .option(...acceptRestoredOptions[1])
    .addHelpText("after", examples)
    .action(run(move));
}

const examples = `
The app is copied while it runs, then stopped here, copied again, and started on the other node with the same ID. After a failure
or Ctrl-C it runs here again. Repeat the command to continue an unfinished move, or pass --abort to undo it.
The stopped app stays here unless --remove is given. Its jobs and its backup policy also stay here. The other node asks for consent
to licenses and permissions as for an install, and asks before root gets an app.

Examples:
  svc app move hello --to attic --dry-run
  svc app move hello --to attic
`;

interface MoveOptions extends IdentityOption, AcceptOptions {
  readonly to?: string;
  readonly dryRun?: boolean;
  readonly remove?: boolean;
  readonly abort?: boolean;
}

async function move(context: CommandContext, given: string, options: MoveOptions): Promise<void> {
  const { to: target, dryRun = false, remove = false, abort = false } = options;
  const from = chooseNode(context.host, context.options)?.name ?? localNode;
  if (abort && (dryRun || remove)) {
    throw new UsageError("--abort cannot be combined with --dry-run or --remove");
  }
  if (target === from) throw new UsageError(`${given} is already on ${from}; choose another node with --to`);
  const app = await context.call(calls.getApp, { id: given });
  requireNamed(given, app.id, context);
  const { id, enabled } = app;
  const journal = new MoveJournal(context.host, context.options.socket ?? from, id);
  const unfinished = await journal.read();
  if (abort && unfinished === undefined) {
    throw new SvcError("not_possible", `${id} has no unfinished move to undo`);
  }
  const name = target ?? unfinished?.to;
  if (name === undefined) throw new UsageError("--to is required: the target node");
  const address = findNode(context.host, name)?.address ?? context.options.socket ?? localNode;
  if (unfinished !== undefined) requireSame(unfinished, { app, name, address, path: journal.path });

  await using to = context.at(name);
  if (unfinished === undefined) {
    const plan = await planTransfer(context, to, id);
    if (plan.exists) {
      throw new SvcError(
        "already_exists",
        `${name} already has an app ${id}; compare both with: svc ls --all-nodes`,
      );
    }
    if (dryRun) {
      await printPlan(context, plan, `would be moved to ${name}`);
      return;
    }
    await confirmLeftBehind(context, plan);
  } else if (dryRun) {
    await context.printResult(
      { id, node: name, step: unfinished.step },
      `${id} would continue to move to ${name}: ${unfinished.step}`,
    );
    return;
  }
  const accepted = acceptedBy(options);
  if (!abort) await acceptOwner(to, app, { from, accepted });
  if (remove) {
    await confirmRemoval(context, removalOf([app], `, once it runs on ${name}`));
  }
  const begun: Move =
    unfinished === undefined
      ? { id, to: name, address, created: app.created_at, ...emptyMove, wasEnabled: enabled }
      : // Somebody may have started it here since.
        { ...unfinished, wasEnabled: unfinished.wasEnabled || enabled };
  const identity = await readIdentity(context, options);
  const { owner, package_id: packageId } = app;
  const nodes = { from: context, to, owner, identity, accepted, fromName: from, packageId };
  const steps = new AppMove(nodes, journal, begun);
  if (abort) {
    const isOnTarget = await steps.abort();
    const copyNote = isOnTarget
      ? `its copy on ${name} is stopped; remove it with: svc -N ${name} remove ${id}`
      : `${name} has no copy`;
    await context.printResult({ id, node: from }, `${id} is on ${from} as before; ${copyNote}`);
    return;
  }
  await printMoved(context, await steps.run({ remove }), { id, from, name });
}

/** The source node must not choose which app is moved. At a terminal, `given` may be a prefix. */
function requireNamed(given: string, id: string, { host }: CommandContext): void {
  if (id === given || (isInteractive(host) && id.startsWith(given))) return;
  throw new SvcError("not_possible", `the source node returned app "${id}" instead of "${given}"`);
}

const emptyMove = { step: "copying", arrived: undefined, base: undefined } as const;

/** @throws SvcError if an unfinished move has another target */
function requireSame(
  { id, to, created, address }: Move,
  now: { readonly app: App; readonly name: string; readonly address: string; readonly path: string },
): void {
  const { app, name, path } = now;
  let words: string;
  if (to !== name) {
    words = `${id} has an unfinished move to ${to}: continue with svc app move ${id} --to ${to}, or undo with svc app move ${id} --abort`;
  } else if (address !== now.address) {
    words = `${id} has an unfinished move to ${to} at ${address}, but ${to} is now ${now.address}: set the node's address back`;
  } else if (created !== app.created_at) {
    words = `${path} is about an earlier app ${id}: check which apps run on ${to}, then remove the file`;
  } else {
    return;
  }
  throw new SvcError("not_possible", words);
}

function printMoved(
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
  const paused = `downtime ${(pausedMs / 1_000).toFixed(1)} s`;
  const there = from === localNode ? "svc" : `svc -N ${from}`;
  const rest = isRemoved ? "" : ` On ${from} it is stopped; remove it there with: ${there} remove ${id}`;
  const done = `Moved ${id} to ${name} (${formatBytes(bytes)}; ${paused}).${rest}`;
  return context.printLine(done);
}
