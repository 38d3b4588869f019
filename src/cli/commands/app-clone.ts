/** `svc app clone`: a full copy under a new id. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { AdvisedError, asSvcError } from "../failure.ts";
import { followProgress } from "../follow-progress.ts";
import { confirm, isInteractive } from "../prompt.ts";
import type { RunCommand } from "../run-command.ts";
import { portsText } from "../render/app-table.ts";
import { formatBytes } from "../render/units.ts";

export function addCloneCommand(parent: Command, run: RunCommand): void {
  parent
    .command("clone")
    .description("copy an app with its data; the copy is stopped")
    .argument("<id>", "the app to copy")
    .option("--name <name>", "display name of the copy (default: its id)")
    .option(
      "--share-volumes",
      "let the copy use the volumes that are not copied: those with a driver or a name of their own",
    )
    .action(run(clone));
}

interface CloneOptions {
  readonly name?: string;
  readonly shareVolumes?: boolean;
}

async function clone(
  context: CommandContext,
  id: string,
  { name = "", shareVolumes = false }: CloneOptions,
): Promise<void> {
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  const attempt = (share: boolean) => {
    const request = { id, name, shareVolumes: share };
    return followProgress(context, `clone ${id}`, AppService.method.cloneAppStream, request);
  };
  const copy = await attempt(shareVolumes).catch(async (thrown: unknown) => {
    await askToShare(context, thrown);
    return attempt(true);
  });
  if (context.json) return context.printJson(copy);
  if (copy.source_running) {
    context.note(`${id} was running: its files were copied as they were at that moment.`);
  }
  const ports = copy.ports.length === 0 ? "" : ` on port ${portsText(copy.ports)}`;
  const text = `Cloned ${id} to ${copy.id} (${formatBytes(copy.copied_bytes)})${ports}`;
  return context.printLine(`${text}. Start it: svc app start ${copy.id}`);
}

/** @throws what was thrown, unless somebody says yes to what it asks */
async function askToShare(context: CommandContext, thrown: unknown): Promise<void> {
  const error = asSvcError(thrown);
  if (error?.reason !== "volumes_shared" || context.json) throw thrown;
  const sentence = error.message.replace(/; allow that with share_volumes$/, "");
  if (!isInteractive(context.host)) {
    throw new AdvisedError(error, `${sentence}; pass --share-volumes to let it`);
  }
  context.note(`${sentence}.`);
  if (await confirm(context.host, "Clone it all the same?")) return;
  throw new AdvisedError(error, "nothing was changed: the app was not cloned");
}
