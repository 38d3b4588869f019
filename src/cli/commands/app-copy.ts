/** `svc app copy`: an app on another node, too. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../failure.ts";
import { chooseNode } from "../nodes/choose-node.ts";
import { localNode } from "../nodes/node-file.ts";
import { formatBytes } from "../render/units.ts";
import type { RunCommand } from "../run-command.ts";
import { transfer, type Arrived } from "./app-transfer.ts";
import { identityHelp, readIdentity, type IdentityOption } from "./backup/archive-ref.ts";
import { planTransfer, sayPlan } from "./transfer-plan.ts";

export function addCopyCommand(parent: Command, run: RunCommand): void {
  parent
    .command("copy")
    .description("copy an app with its data to another node; the copy is stopped")
    .argument("<id>", "the app to copy")
    .requiredOption("--to <node>", "a node of svc node list")
    .option("--dry-run", "say what would be copied, and change nothing")
    .option("--identity <file>", identityHelp)
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

interface CopyOptions extends IdentityOption {
  readonly to: string;
  readonly dryRun?: boolean;
}

async function copy(
  context: CommandContext,
  id: string,
  { to: name, dryRun = false, ...options }: CopyOptions,
): Promise<void> {
  const from = chooseNode(context.host, context.options)?.name ?? localNode;
  if (from === name)
    throw new UsageError(`${id} is on ${name} already; a copy on the same node is: svc app clone ${id}`);
  await using to = context.at(name);
  const plan = await planTransfer(context, to, id);
  if (dryRun) {
    await sayPlan(context, plan, `would be copied to ${name}`);
    return;
  }
  const identity = await readIdentity(context, options);
  const copied = await transfer({ from: context, to, id, identity }, plan.exists);
  await sayCopied(context, copied, { id, name });
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
  for (const warning of warnings) context.note(`warning: ${warning}`);
  const done = `Copied ${id} to ${name} as ${copied.id} (${formatBytes(copied.bytes)})`;
  return context.printLine(`${done}. Start it: svc -N ${name} app start ${copied.id}`);
}
