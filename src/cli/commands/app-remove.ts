/** `svc remove`: removes apps and all their data. */
import { Option, type Command } from "commander";
import { notFound } from "../../errors.ts";
import type { CommandContext } from "../context.ts";
import { examples } from "../examples.ts";
import { type AllOption, chosenIds, forEachName } from "../for-each.ts";
import { UsageError } from "../output/failure.ts";
import type { RunCommand } from "../run-command.ts";
import { confirmRemoval, type Removal } from "../input/prompt.ts";
import { adoptedText } from "../output/app-table.ts";
import { formatBytes } from "../output/units.ts";
import { calls, type App } from "../client/calls.ts";

interface RemoveOptions extends AllOption {
  readonly dryRun?: boolean;
  readonly force?: boolean;
}

export function addRemoveCommand(parent: Command, run: RunCommand): void {
  parent
    .command("remove")
    .aliases(["rm", "uninstall"])
    .description("stop apps and remove them with all their data (asks for confirmation; skip with --yes)")
    .argument("[id...]", "the apps")
    .option("--all", "remove every app")
    .option("--dry-run", "show what would be removed, and change nothing")
    // Docker users type it, but docker rm --force keeps volumes, so it must not skip the question here.
    .addOption(new Option("-f, --force", "is rejected with advice").hideHelp())
    .addHelpText("after", examples("svc rm hello --dry-run", "svc rm hello blog --yes"))
    .action(
      run(async (context, named: string[], { dryRun = false, force = false, all = false }: RemoveOptions) => {
        if (force)
          throw new UsageError(
            "--force is not an option: removal deletes all data; to skip the question, pass --yes",
          );
        const ids = await chosenIds(context, named, { all });
        return dryRun ? showPlan(context, ids) : remove(context, ids);
      }),
    );
}

async function remove(context: CommandContext, ids: readonly string[]): Promise<void> {
  if (ids.length > 0 && context.options.yes !== true)
    await confirmRemoval(context, removalOf(await appsOf(context, ids)));
  await forEachName(context, ids, {
    call: async (id) => {
      const removed = await context.call(calls.removeApp, { id });
      await noteArchives(context, removed.id);
      return removed;
    },
    text: (removed) =>
      `Removed ${removed.id} and freed ${formatBytes(removed.freed_bytes)}${keptText(removed)}${jobsText(removed)}`,
  });
}

/** Archives outlive their app. Without an answer, the note is omitted. */
async function noteArchives(context: CommandContext, id: string): Promise<void> {
  const { backups } = await context.call(calls.listBackups, { app_id: id }).catch(() => ({ backups: [] }));
  if (backups.length === 0 || context.json || context.options.quiet === true) return;
  const count = backups.length === 1 ? "1 archive" : `${backups.length} archives`;
  context.note(`${count} of ${id} stay${backups.length === 1 ? "s" : ""}. See: svc backup ls ${id}`);
}

async function appsOf(context: CommandContext, ids: readonly string[]): Promise<App[]> {
  const apps: App[] = [];
  for (const id of ids) apps.push(await requireApp(context, id));
  return apps;
}

/** The question before apps are removed, which names adopted data that stays. @param when such as `, once it runs on nas` */
export function removalOf(apps: readonly App[], when = ""): Removal {
  const kept = apps.flatMap(({ adopted }) => adoptedText(adopted) ?? []).join("; ");
  const what = `${apps.map(({ id }) => id).join(", ")}${when === "" ? "" : " here"} with all data`;
  const except = kept === "" ? "" : `, except adopted data (${kept})`;
  return { question: `Remove ${what}${except}${when}?`, loss: `this deletes ${what}${except}` };
}

function showPlan(context: CommandContext, ids: readonly string[]): Promise<void> {
  return forEachName(context, ids, {
    call: async (id) => {
      const { adopted } = await requireApp(context, id);
      const { removable_bytes: removableBytes } = await context.call(calls.getAppDisk, { id });
      const { schedules } = await context.call(calls.listSchedules, {});
      const jobs = schedules.filter(({ action }) => action?.app === id).map((job) => job.id);
      return { id, size_bytes: removableBytes, disabled_schedules: jobs, kept: adopted };
    },
    text: (plan) =>
      `Would remove ${plan.id} and free ${formatBytes(plan.size_bytes)}${keptText(plan, "would stay")}${jobsText(plan, "would disable")}`,
  });
}

/** Removal cannot be undone, so it requires the full ID; a read would also accept a prefix. */
async function requireApp(context: CommandContext, id: string): Promise<App> {
  const found = await context.call(calls.getApp, { id });
  if (found.id !== id) throw notFound("app", id);
  return found;
}

function keptText({ kept }: { readonly kept?: App["adopted"] | undefined }, verb = "stays"): string {
  const text = adoptedText(kept);
  return text === undefined ? "" : `; adopted data ${verb}: ${text}`;
}

/** Older daemons do not report jobs. */
function jobsText(
  { disabled_schedules: jobs = [] }: { readonly disabled_schedules?: readonly string[] },
  verb = "disabled",
): string {
  return jobs.length === 0 ? "" : `; ${verb} its jobs: ${jobs.join(", ")}`;
}
