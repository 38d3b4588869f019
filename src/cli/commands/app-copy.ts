/** `svc app copy`: copies an app to another node. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { UsageError } from "../output/failure.ts";
import { acceptedBy, acceptRestoredOptions, type AcceptOptions } from "../input/accept-license.ts";
import { chooseNode } from "../nodes/choose-node.ts";
import { localNode } from "../nodes/node-file.ts";
import { formatBytes } from "../output/units.ts";
import type { RunCommand } from "../run-command.ts";
import { transfer, type TransferResult } from "./app-transfer.ts";
import { identityHelp, readIdentity, type IdentityOption } from "./backup/archive-ref.ts";
import { acceptOwner, confirmLeftBehind, planTransfer, printPlan } from "./transfer-plan.ts";

export function addCopyCommand(parent: Command, run: RunCommand): void {
  parent
    .command("copy")
    .description("copy an app with its data to another node; the copy is stopped")
    .argument("<id>", "the app to copy")
    .requiredOption("--to <node>", "the target node; see svc node list")
    .option("--dry-run", "show what would be copied, and change nothing")
    .option("--identity <file>", identityHelp)
    .option(...acceptRestoredOptions[0])
    .option(...acceptRestoredOptions[1])
    .addHelpText("after", examples)
    .action(run(copy));
}

const examples = `
The data passes through this machine and is not stored in between. The app keeps running. If the other node already has an app with
this ID, the copy gets the next free ID. The owner has the same name and user ID there. The other node asks for consent to licenses
and permissions as for an install, and asks before root gets an app.

Examples:
  svc app copy hello --to attic
  svc -N attic app copy hello --to local
`;

interface CopyOptions extends IdentityOption, AcceptOptions {
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
    throw new UsageError(`${id} is already on ${name}; to copy it on the same node: svc clone ${id}`);
  await using to = context.at(name);
  const plan = await planTransfer(context, to, id);
  if (dryRun) {
    await printPlan(context, plan, `would be copied to ${name}`);
    return;
  }
  await confirmLeftBehind(context, plan);
  const accepted = acceptedBy(options);
  await acceptOwner(to, plan, { from, accepted });
  const identity = await readIdentity(context, options);
  const { owner, exists } = plan;
  const copied = await transfer({ from: context, to, id, owner, identity, accepted }, exists);
  await printCopied(context, copied, { id, name });
}

function printCopied(
  context: CommandContext,
  copied: TransferResult,
  { id, name }: { readonly id: string; readonly name: string },
): Promise<void> {
  const { warnings } = copied;
  if (context.json) {
    return context.printJson({ id: copied.id, node: name, restored_bytes: copied.bytes, warnings });
  }
  for (const warning of warnings) context.note(`warning: ${warning}`);
  const done = `Copied ${id} to ${name} as ${copied.id} (${formatBytes(copied.bytes)})`;
  return context.printLine(`${done}. Start it: svc -N ${name} start ${copied.id}`);
}
