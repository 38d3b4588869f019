/** `svc app copy`: an app on another node, too. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { SvcError } from "../../errors.ts";
import { chooseNode } from "../nodes/choose-node.ts";
import { localNode } from "../nodes/node-file.ts";
import { escapeControls } from "../render/escape.ts";
import { formatBytes } from "../render/units.ts";
import type { RunCommand } from "../run-command.ts";
import { calls, type App } from "../transport/calls.ts";
import { transfer, type Arrived } from "./app-transfer.ts";

export function addCopyCommand(parent: Command, run: RunCommand): void {
  parent
    .command("copy")
    .description("copy an app with its data to another node; the copy is stopped")
    .argument("<id>", "the app to copy")
    .requiredOption("--to <node>", "a node of svc node list")
    .option("--dry-run", "say what would be copied, and change nothing")
    .addHelpText("after", examples)
    .action(run(copy));
}

const examples = `
The bytes go through this machine from one node to the other, and no third place has them. The app is not stopped. Where the other
node has an app of that id, the copy gets the next free one.

Examples:
  svc app copy hello --to attic
  svc -N attic app copy hello --to local
`;

interface CopyOptions {
  readonly to: string;
  readonly dryRun?: boolean;
}

async function copy(
  context: CommandContext,
  id: string,
  { to: name, dryRun = false }: CopyOptions,
): Promise<void> {
  const from = chooseNode(context.host, context.options)?.name ?? localNode;
  if (from === name)
    throw new UsageError(`${id} is on ${name} already; a copy on the same node is: svc app clone ${id}`);
  await using to = context.at(name);
  const plan = await planOf(context, to, id);
  if (dryRun) await sayPlan(context, plan, name);
  else await sayCopied(context, await transfer({ from: context, to, id }, plan.exists), { id, name });
}

function sayPlan(context: CommandContext, plan: Plan, node: string): Promise<void> {
  if (context.json) return context.printJson(plan);
  const size = `${formatBytes(plan.total_bytes)}, ${formatBytes(plan.available_bytes)} are free there`;
  const text = `${plan.id} would be copied to ${node} (${size})${plan.exists ? " under another id" : ""}`;
  return context.print(`${escapeControls(text)}\n`);
}

function sayCopied(
  context: CommandContext,
  copied: Arrived,
  { id, name }: { readonly id: string; readonly name: string },
): Promise<void> {
  const { warnings } = copied;
  if (context.json) {
    return context.printJson({ id: copied.id, node: name, restored_bytes: copied.bytes, warnings });
  }
  for (const warning of warnings) context.note(`warning: ${escapeControls(warning)}`);
  const done = `Copied ${id} to ${name} as ${copied.id} (${formatBytes(copied.bytes)})`;
  return context.print(`${escapeControls(`${done}. Start it: svc -N ${name} app start ${copied.id}`)}\n`);
}

interface Plan {
  readonly id: string;
  /** Bytes that it has. */
  readonly total_bytes: number;
  readonly available_bytes: number;
  /** Whether the other node has an app of that id. */
  readonly exists: boolean;
}

/** @throws SvcError what would be in the way */
async function planOf(from: CommandContext, to: CommandContext, id: string): Promise<Plan> {
  const [disk, status, report, there] = await Promise.all([
    from.call(calls.getAppDisk, { id }),
    to.call(calls.getStatus, {}),
    to.call(calls.getDiskReport, {}),
    findApp(to, id),
  ]);
  if (!status.capabilities.includes("backups.upload")) {
    throw new SvcError(
      "not_possible",
      "the daemon there takes no archives: it is older than this svc needs; upgrade it",
    );
  }
  const available = report.filesystem?.available_bytes ?? 0;
  if (disk.total_bytes > available) {
    throw new SvcError(
      "not_possible",
      `${id} has ${formatBytes(disk.total_bytes)}, and there are ${formatBytes(available)} free there`,
    );
  }
  return { id, total_bytes: disk.total_bytes, available_bytes: available, exists: there !== undefined };
}

async function findApp(node: CommandContext, id: string): Promise<App | undefined> {
  try {
    const app = await node.call(calls.getApp, { id });
    // At a terminal an id may be the beginning of another.
    return app.id === id ? app : undefined;
  } catch (error) {
    if (error instanceof SvcError && error.reason === "not_found") return undefined;
    throw error;
  }
}
