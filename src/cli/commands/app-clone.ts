/** `svc clone`: a full copy under a new ID. */
import type { Command } from "commander";
import type { CommandContext } from "../context.ts";
import { detach, detachOption, type DetachOption } from "../detach.ts";
import { examples } from "../examples.ts";
import { AdvisedError, asSvcError, UsageError } from "../output/failure.ts";
import { followProgress } from "../output/follow-progress.ts";
import { confirm, isInteractive } from "../input/prompt.ts";
import type { RunCommand } from "../run-command.ts";
import { portsText } from "../output/app-table.ts";
import { formatBytes } from "../output/units.ts";

export function addCloneCommand(parent: Command, run: RunCommand): void {
  parent
    .command("clone")
    .description("copy an app with its data; the copy is stopped")
    .argument("<id>", "the app to copy")
    .argument("[name]", "name and ID of the copy (default: the next free <id>-N)")
    .option("--name <name>", "the same as the argument")
    .option(
      "--share-volumes",
      "share volumes that cannot be copied (with a driver or a fixed name) with the copy",
    )
    .option(...detachOption)
    .addHelpText("after", examples("svc clone hello", "svc clone hello hello-test"))
    .action(run(clone));
}

interface CloneOptions extends DetachOption {
  readonly name?: string;
  readonly shareVolumes?: boolean;
}

async function clone(
  context: CommandContext,
  id: string,
  named: string | undefined,
  { name = named ?? "", shareVolumes = false, detach: isDetached = false }: CloneOptions,
): Promise<void> {
  if (named !== undefined && name !== named) throw new UsageError("name the copy once");
  const { AppService } = await import("../../../gen/svc/v1/app_pb.ts");
  if (isDetached)
    return detach(context, `clone ${id}`, AppService.method.cloneApp, { id, name, shareVolumes });
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
    context.note(`${id} was running, so the copy may be inconsistent.`);
  }
  const ports = copy.ports.length === 0 ? "" : ` on port ${portsText(copy.ports)}`;
  const text = `Cloned ${id} to ${copy.id} (${formatBytes(copy.copied_bytes)})${ports}`;
  return context.printLine(`${text}. Start it: svc start ${copy.id}`);
}

/** Asks whether to share volumes. @throws the given error unless the user agrees */
async function askToShare(context: CommandContext, thrown: unknown): Promise<void> {
  const error = asSvcError(thrown);
  if (error?.reason !== "volumes_shared" || context.json) throw thrown;
  const sentence = error.message.replace(/; allow that with share_volumes$/, "");
  if (!isInteractive(context.host)) {
    throw new AdvisedError(error, `${sentence}; pass --share-volumes to let it`);
  }
  context.note(`${sentence}.`);
  if (await confirm(context.host, "Clone it anyway?")) return;
  throw new AdvisedError(error, "nothing was changed: the app was not cloned");
}
